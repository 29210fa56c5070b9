"""The two ways to read the letter that a reply chooses: as the question says it, and as NeMo Gym does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from gymq.workers.resources.mcqa import published

from gymq.text import Choices, answer_lines, boxes, conclusion, in_order, undressed
from gymq.text.choices import normalised

RowMode = Literal["strict_single_letter_boxed", "lenient_boxed", "lenient_answer_colon"]
Mode = Literal[RowMode, "lenient_answer_colon_md"]


def letter_as_asked(reply: str, choices: Choices, mode: Mode) -> str | None:
    """Return the letter in the last box, or in the last answer line that chooses an option, behind the thoughts."""
    reply = conclusion(reply)
    if mode in ("lenient_answer_colon", "lenient_answer_colon_md"):
        return the_last(choices, in_order(answer_lines(reply)))
    found = boxes(reply)
    if not found:
        return None
    box = found[-1].text
    chosen = choices.chosen_in(box)
    if not chosen and mode == "lenient_boxed":
        chosen = choices.letters_within(normalised(undressed(box)))
    return _the_only(chosen)


def published_letter(reply: str, choices: Choices, mode: Mode) -> str | None:
    """Return the letter that NeMo Gym reads, in each grading mode in another way."""
    return published.READERS[mode](reply, choices)


def the_last(choices: Choices, places: Sequence[str]) -> str | None:
    """Return the letter that the last place chooses that chooses any; None if it chooses several."""
    return _the_only(next(filter(None, map(choices.chosen_in, reversed(places))), set()))


def _the_only(letters: set[str]) -> str | None:
    return next(iter(letters)) if len(letters) == 1 else None
