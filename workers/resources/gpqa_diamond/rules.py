"""The two ways to read the letter that a reply chooses: as the question says it, and as NeMo Gym does."""

from __future__ import annotations

from gymq.workers.resources.gpqa_diamond import published
from gymq.workers.resources.mcqa.rules import Mode, the_last

from gymq.text import Choices, answer_lines, boxes, conclusion, in_order


class AsAsked:
    """Reads the last answer line or box that chooses an option, behind the thoughts."""

    def letter(self, reply: str, choices: Choices, mode: Mode) -> str | None:
        reply = conclusion(reply)
        return the_last(choices, in_order(boxes(reply), answer_lines(reply)))


class Published:
    """Reads the last box or, without a letter in it, the last answer line, as NeMo Gym does."""

    def letter(self, reply: str, choices: Choices, mode: Mode) -> str | None:
        letter = published.chosen_letter(reply)
        return letter if letter is None or not choices.texts or letter in choices.texts else None
