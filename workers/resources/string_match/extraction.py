"""How NeMo Gym finds the answer in a reply, one way for each extraction mode, in linear time."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal

from gymq.workers.resources.mcqa.published import BOX, closing_braces, without_text_wrappers

Mode = Literal["final_answer", "boxed", "last_line", "full_response"]

_ANSWER_LINE = re.compile(r"answer\s*+[:\uff1a]\s*+(\S.*)", re.IGNORECASE)


def find_answer(reply: str, mode: Mode) -> str | None:
    """Return the answer in a trimmed reply; None if there is none, or no reply."""
    return READERS[mode](reply) if reply else None


def answer_line(reply: str) -> str | None:
    """Return what follows the last `Answer:` in its line or, if that ends there, in the next one that is not blank.

    Without any, the last box counts.
    """
    found = _ANSWER_LINE.findall(reply)
    return found[-1].strip().removesuffix(".").strip().rstrip(".") if found else boxed(reply)


def boxed(reply: str) -> str | None:
    """Return the content of the last box that closes, without the `\\text{` and `}` at its ends."""
    ends = closing_braces(reply)
    start = reply.rfind(BOX)
    while start >= 0:
        content = start + len(BOX)
        if content - 1 in ends:
            return without_text_wrappers(reply[content : ends[content - 1]])
        start = reply.rfind(BOX, 0, start)
    return None


def last_line(reply: str) -> str:
    """Return the last line that is not blank; a trimmed reply ends with one."""
    return reply.splitlines()[-1].strip()


def full_response(reply: str) -> str:
    """Return the reply."""
    return reply


READERS: dict[Mode, Callable[[str], str | None]] = {
    "final_answer": answer_line,
    "boxed": boxed,
    "last_line": last_line,
    "full_response": full_response,
}
