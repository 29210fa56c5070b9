"""Where a reply gives its answer: in boxes and in lines that begin with `Answer:`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from gymq.ext.text.marks import closing_braces

_BOX = re.compile(r"\\(?:boxed|fbox)\s*+(?=\{)")
_ANSWER = re.compile(r"\banswer[*_`]{0,3}\s*+[:\uff1a][*_`]{0,3}\s*+", re.IGNORECASE)


class Found(NamedTuple):
    """A text that may be the answer, and where it begins in the reply."""

    start: int
    text: str


def boxes(reply: str) -> list[Found]:
    """Return the contents of the boxes that close; of a box within another one only the outer."""
    if "\\boxed" not in reply and "\\fbox" not in reply:
        return []
    closed = closing_braces(reply)
    found: list[Found] = []
    inside_until = 0
    for box in _BOX.finditer(reply):
        end = closed.get(box.end())
        if end is not None and box.start() >= inside_until:
            found.append(Found(box.start(), reply[box.end() + 1 : end]))
            inside_until = end
    return found


def answer_lines(reply: str, opening: re.Pattern[str] = _ANSWER) -> list[Found]:
    """Return what follows each opening, such as `**Answer:**`, up to the next one or the end of its line.

    Where nothing follows in the line, the next one that is not blank counts.
    """
    answers = list(opening.finditer(reply))
    ends = [*(answer.start() for answer in answers[1:]), len(reply)]
    found = []
    for answer, end in zip(answers, ends, strict=False):
        line_end = reply.find("\n", answer.end(), end)
        found.append(Found(answer.start(), reply[answer.end() : end if line_end < 0 else line_end]))
    return [one for one in found if one.text.strip()]


def in_order(*found: Iterable[Found]) -> list[str]:
    """Return the texts as they follow each other in the reply."""
    return [text for _, text in sorted(one for several in found for one in several)]
