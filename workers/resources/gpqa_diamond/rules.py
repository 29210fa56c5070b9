"""The two ways to read the letter that a reply chooses: as the question says it, and as NeMo Gym does."""

from __future__ import annotations

import re

from gymq.workers.resources.mcqa.published import BOX
from gymq.workers.resources.mcqa.rules import Mode, the_last

from gymq.ext.text import Choices, answer_lines, boxes, in_order
from gymq.responses import conclusion

_CAPITAL = re.compile(r"\b[A-Z]\b")
_ANSWER = re.compile(r"answer[*_]{0,2}\s*+:[\s*_]{0,2}\s*+([A-Za-z])(?![A-Za-z0-9])", re.IGNORECASE)


def letter_as_asked(reply: str, choices: Choices, mode: Mode) -> str | None:
    """Return the letter in the last answer line or box that chooses an option, behind the thoughts."""
    reply = conclusion(reply)
    return the_last(choices, in_order(boxes(reply), answer_lines(reply)))


def published_letter(reply: str, choices: Choices, mode: Mode) -> str | None:
    """Return the letter in the last box or, without a letter in it, in the last answer line, as NeMo Gym does."""
    letter = boxed_letter(reply) or answer_line_letter(reply)
    return letter if letter is None or not choices.texts or letter in choices.texts else None


def boxed_letter(reply: str) -> str | None:
    """Return the capital that the last box holds or, in a longer content, the last one that stands alone.

    The first brace that closes ends a box, with whatever is in it; a box without any is passed over.
    """
    content, end = None, 0
    while (start := reply.find(BOX, end)) >= 0 and (end := reply.find("}", start)) >= 0:
        content = reply[start + len(BOX) : end].strip()
    if content is None:
        return None
    if len(content) == 1 and content.isupper():
        return content
    capitals = _CAPITAL.findall(content)
    return capitals[-1] if capitals else None


def answer_line_letter(reply: str) -> str | None:
    """Return the letter of the last `Answer: C`, also `**Answer:** c`, in upper case."""
    found = _ANSWER.findall(reply)
    return found[-1].upper() if found else None
