"""Reading what a program prints, up to a limit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def read_bounded(stream: asyncio.StreamReader, limit: int, too_much: Callable[[], None]) -> bytes:
    """The stream up to its end; beyond the limit it is only emptied."""
    parts: list[bytes] = []
    left = limit
    while part := await stream.read(65536):
        if len(part) > left and left >= 0:
            too_much()
            part, left = part[:left], -1
            parts.append(part)
        elif left >= 0:
            parts.append(part)
            left -= len(part)
    return b"".join(parts)
