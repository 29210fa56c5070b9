"""The two ways to read the letter that a reply chooses: as the question says it, and as NeMo Gym does."""

from __future__ import annotations

from gymq.workers.resources.gpqa_diamond import published
from gymq.workers.resources.mcqa.rules import Mode, the_last

from gymq.text import Choices, answer_lines, boxes, conclusion, in_order


def letter_as_asked(reply: str, choices: Choices, mode: Mode) -> str | None:
    """Return the letter in the last answer line or box that chooses an option, behind the thoughts."""
    reply = conclusion(reply)
    return the_last(choices, in_order(boxes(reply), answer_lines(reply)))


def published_letter(reply: str, choices: Choices, mode: Mode) -> str | None:
    """Return the letter in the last box or, without a letter in it, in the last answer line, as NeMo Gym does."""
    letter = published.chosen_letter(reply)
    return letter if letter is None or not choices.texts or letter in choices.texts else None
