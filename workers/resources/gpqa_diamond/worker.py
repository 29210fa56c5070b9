"""gpqa_diamond: multiple-choice questions as in mcqa, whose prompt asks for a last line `Answer: LETTER`."""

from __future__ import annotations

from gymq.workers.resources.gpqa_diamond.letters import chosen_letter
from gymq.workers.resources.mcqa.letters import Choices
from gymq.workers.resources.mcqa.worker import ChoiceRow, MultipleChoice


class GpqaDiamond(MultipleChoice):
    """Reward 1 if the last box or, without a letter in it, the last answer line has the expected letter."""

    def read_letter(self, row: ChoiceRow, reply: str, choices: Choices) -> str | None:
        """Return the letter in the last box or the last answer line, unless the row has options and it is none."""
        letter = chosen_letter(reply)
        return letter if letter is None or not choices.texts or letter in choices.texts else None
