"""Reading the answer out of a reply. Linear in its length for any content."""

from __future__ import annotations

OPENING, CLOSING, BOX = "<answer>", "</answer>", "\\boxed{"


def read_answer(reply: str) -> str:
    """The last pair of answer tags, or else the first box that is not empty, or else the whole reply; trimmed."""
    for found in (_last_tagged(reply), _first_boxed(reply)):
        if found is not None:
            return found.strip()
    return reply.strip()


def _last_tagged(reply: str) -> str | None:
    found, position = None, 0
    while (start := reply.find(OPENING, position)) >= 0:
        start += len(OPENING)
        end = reply.find(CLOSING, start)
        if end < 0:
            break
        found, position = reply[start:end], end + len(CLOSING)
    return found


def _first_boxed(reply: str) -> str | None:
    """Up to the first closing brace: braces inside a box are not counted."""
    position = 0
    while (start := reply.find(BOX, position)) >= 0:
        start += len(BOX)
        end = reply.find("}", start)
        if end < 0:
            break
        if end > start:
            return reply[start:end]
        position = end
    return None
