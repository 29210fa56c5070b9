"""The two ways to read a reply: as the question says it, and as NeMo Gym does."""

from __future__ import annotations

import re

from gymq.workers.resources.gpqa_diamond.rules import answer_line_letter
from gymq.workers.resources.mcqa.published import BOX, last_box
from gymq.workers.resources.mcqa.rules import the_last

from gymq.text import Choices, Words, answer_lines, boxes, conclusion, in_order
from gymq.text.choices import FOREIGN_LETTERS

_OPENING = re.compile(r"\banswer(?: is\b[*_:]*+|[*_`]{0,3}\s*+[:\uff1a][*_`]{0,3})\s*+", re.IGNORECASE)
_BLANK_LINE = re.compile(r"\n[ \t]++(?=\n)")
_ANY_LETTER = Choices({})
_FINAL = re.compile(r"The final answer is (.+)$", re.MULTILINE)
_CAPITAL = re.compile(r"\b[A-Z]\b")


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
        return published_letter(reply)

    def text(self, reply: str) -> str:
        return reply

    def contains(self, text: str, reference: str) -> bool:
        return reference.lower() in text.lower()


def published_letter(reply: str) -> str | None:
    """Return the letter of the last sentence that gives the final answer or, without one, of the last box.

    If there is neither, or no letter in it, the last answer line counts.
    """
    sentences = _FINAL.findall(reply)
    candidate = sentences[-1] if sentences else _content_of_last_box(reply)
    return _letter_in(candidate or "") or answer_line_letter(reply)


def _content_of_last_box(reply: str) -> str | None:
    """Return what the last box holds; nothing if the command is not followed by a brace, or the brace not closed."""
    if reply.rfind(BOX.removesuffix("{")) != reply.rfind(BOX):
        return None
    return last_box(reply)


def _letter_in(candidate: str) -> str | None:
    """Return a character that stands by itself, whatever it is, or the last capital that stands alone."""
    text = candidate.translate(FOREIGN_LETTERS).strip()
    if len(text) == 1:
        return text.upper()
    capitals = _CAPITAL.findall(text)
    return capitals[-1] if capitals else None
