"""gpqa_diamond: multiple-choice questions as in mcqa, whose prompt asks for a last line `Answer: LETTER`."""

from __future__ import annotations

from typing import ClassVar

from gymq.workers.resources.gpqa_diamond.rules import letter_as_asked, published_letter
from gymq.workers.resources.mcqa.worker import MultipleChoice


class GpqaDiamond(MultipleChoice):
    """Reward 1 if the last answer line or box that chooses an option has the expected letter."""

    readers: ClassVar = {True: letter_as_asked, False: published_letter}
