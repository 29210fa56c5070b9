"""The two ways to read the letter that a reply chooses: as the question says it, and as NeMo Gym does."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from gymq.workers.resources.mcqa import published

from gymq.ext.text import Choices, answer_lines, boxes, in_order, undressed
from gymq.ext.text.choices import FOREIGN_LETTERS, normalised
from gymq.responses import conclusion

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


def letter_by_pattern(pattern: str, reply: str, choices: Choices) -> str | None:
    """Return the letter that the first group of the last match of a row's own pattern holds, or whose text it holds.

    A single letter is the answer whether or not it can be chosen. An invalid pattern finds nothing.
    It may need exponential time, so it runs in a process that can be killed.
    """
    try:
        matches = list(re.finditer(pattern, reply, re.IGNORECASE))
    except (re.error, OverflowError, RecursionError):
        return None
    if not matches:
        return None
    last = matches[-1]
    answer = ((last[1] if last.re.groups else last[0]) or "").strip()
    letter = answer.translate(FOREIGN_LETTERS).strip().upper()
    if len(letter) == 1 and letter.isalpha():
        return letter
    return choices.letter_of_text(answer)
