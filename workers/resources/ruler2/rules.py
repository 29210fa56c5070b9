"""The two ways to read a reply: as the question says it, and as NeMo Gym does."""

from __future__ import annotations

import re

from gymq.workers.resources.mcqa.rules import the_last
from gymq.workers.resources.ruler2 import published

from gymq.text import Choices, Words, answer_lines, boxes, conclusion, in_order

_OPENING = re.compile(r"\banswer(?: is\b[*_:]*+|[*_`]{0,3}\s*+[:\uff1a][*_`]{0,3})\s*+", re.IGNORECASE)
_BLANK_LINE = re.compile(r"\n[ \t]++(?=\n)")
_ANY_LETTER = Choices({})


class AsAsked:
    """Reads behind the thoughts the last place that chooses a letter, and references that stand by themselves."""

    def letter(self, reply: str) -> str | None:
        reply = conclusion(reply)
        return the_last(_ANY_LETTER, in_order(boxes(reply), answer_lines(reply, _OPENING)))

    def text(self, reply: str) -> str:
        return _BLANK_LINE.sub("\n", conclusion(reply)).strip()

    def contains(self, text: str, reference: str) -> bool:
        return reference in Words(text)


class Published:
    """Reads the letter in one place after the other, and references also inside words."""

    def letter(self, reply: str) -> str | None:
        return published.chosen_letter(reply)

    def text(self, reply: str) -> str:
        return reply

    def contains(self, text: str, reference: str) -> bool:
        return reference.lower() in text.lower()
