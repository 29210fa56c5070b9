"""How much memory requests may take together; whoever finds none left waits."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class MemoryBudget:
    """Bytes, given out in the order in which they are asked for."""

    def __init__(self, num_bytes: int) -> None:
        self._total = num_bytes
        self._free = num_bytes
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def taken(self, num_bytes: int) -> AsyncIterator[None]:
        """Holds so many bytes of the budget; more than there are count as all of them."""
        num_bytes = min(num_bytes, self._total)
        await self._take(num_bytes)
        try:
            yield
        finally:
            self._give_back(num_bytes)

    async def _take(self, num_bytes: int) -> None:
        if not self._waiting and num_bytes <= self._free:
            self._free -= num_bytes
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((num_bytes, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._give_back(num_bytes)
            else:
                self._waiting.remove((num_bytes, turn))
                self._give_back(0)  # those behind may fit
            raise

    def _give_back(self, num_bytes: int) -> None:
        self._free += num_bytes
        while self._waiting and self._waiting[0][0] <= self._free:
            wanted, turn = self._waiting.popleft()
            if not turn.cancelled():
                self._free -= wanted
                turn.set_result(None)
