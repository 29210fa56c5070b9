"""The room for large bodies: those of a process that are on their way at the same time have a limit in bytes.

Many long rollouts may end in the same moment. Without a limit all their bodies would be in memory at once, here, in the
server and in the process that reads them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

LARGE_BYTES = 64 << 10  # smaller bodies do not count


class LargeBodies:
    """The large bodies of a process that are sent and not yet taken."""

    def __init__(self, most_bytes: int = 8 << 20) -> None:
        self._most_bytes = most_bytes
        self._num_bytes = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def encode_when_room(self, encode: Callable[[], bytes], deadline: float | None = None) -> tuple[bytes, int]:
        """Return a body when there is room for it, and the bytes to `release` in the end.

        It waits as what it is made of: a body that finds no room is dropped and encoded again.

        Args:
            encode: returns the body.
            deadline: on the event loop's clock, until when to wait; None: without end.

        Raises:
            TimeoutError: there was no room until the deadline.
        """
        body = encode()
        num_bytes = len(body)
        if num_bytes < LARGE_BYTES:
            return body, 0
        if not self._waiting and self._fits(num_bytes):
            self._num_bytes += num_bytes
            return body, num_bytes
        del body
        async with asyncio.timeout_at(deadline):
            await self._until_room(num_bytes)
        return encode(), num_bytes

    def release(self, num_bytes: int) -> None:
        """Make room: a body was taken, or will not be sent."""
        self._num_bytes -= num_bytes
        while self._waiting:
            wanted, found = self._waiting[0]
            if not found.done():
                if not self._fits(wanted):
                    return
                self._num_bytes += wanted
                found.set_result(None)
            self._waiting.popleft()

    def _fits(self, num_bytes: int) -> bool:
        return self._num_bytes + num_bytes <= self._most_bytes or not self._num_bytes

    async def _until_room(self, num_bytes: int) -> None:
        found = asyncio.get_running_loop().create_future()
        self._waiting.append((num_bytes, found))
        try:
            await found
        except asyncio.CancelledError:
            self.release(num_bytes if found.done() and not found.cancelled() else 0)
            raise
