"""How NeMo Gym reads the letter out of a reply to a multiple-choice question."""

from __future__ import annotations

import re

from gymq.workers.resources.gpqa_diamond.published import answer_line_letter
from gymq.workers.resources.mcqa.published import BOX, last_box

from gymq.text.choices import FOREIGN_LETTERS

_FINAL = re.compile(r"The final answer is (.+)$", re.MULTILINE)
_CAPITAL = re.compile(r"\b[A-Z]\b")


def chosen_letter(reply: str) -> str | None:
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
