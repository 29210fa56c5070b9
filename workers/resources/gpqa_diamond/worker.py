"""gpqa_diamond: multiple-choice questions as in mcqa, whose prompt asks for a last line `Answer: LETTER`."""

from __future__ import annotations

from gymq.workers.resources.gpqa_diamond.rules import AsAsked, Published
from gymq.workers.resources.mcqa.worker import MultipleChoice


class GpqaDiamond(MultipleChoice):
    """Reward 1 if the last answer line or box that chooses an option has the expected letter."""

    as_asked, published = AsAsked(), Published()
