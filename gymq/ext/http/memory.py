"""Limit on the memory that large request bodies may take together while they arrive."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class MemoryBudget:
    """Bytes, taken as they come.

    Nothing is reserved: a body that has announced much and sent little holds little. When all is taken, bodies wait for
    those that began before them. The one that began first never waits, so one of them always gets on; it may exceed
    the budget by its own size.
    """

    def __init__(self, num_bytes: int) -> None:
        self._free = num_bytes
        self._shares: dict[BodyMemory, None] = {}  # in the order in which they began

    @contextmanager
    def share(self) -> Iterator[BodyMemory]:
        """Open the share of one body, which is released when the block ends."""
        share = BodyMemory(self)
        self._shares[share] = None
        try:
            yield share
        finally:
            del self._shares[share]
            self._free += share.num_bytes
            self._wake()

    def _has_room(self, share: BodyMemory, num_bytes: int) -> bool:
        return num_bytes <= self._free or share is next(iter(self._shares))

    def _wake(self) -> None:
        """Let those take that have room now, in their order."""
        for share in self._shares:
            turn = share.turn
            if turn is not None and not turn.done():
                if not self._has_room(share, share.num_wanted):
                    break
                self._grant(share, share.num_wanted)
                turn.set_result(None)

    def _grant(self, share: BodyMemory, num_bytes: int) -> None:
        self._free -= num_bytes
        share.num_bytes += num_bytes


class BodyMemory:
    """The part of a budget that one body takes."""

    __slots__ = ("_budget", "num_bytes", "num_wanted", "turn")

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self.num_bytes = 0
        self.num_wanted = 0
        self.turn: asyncio.Future[None] | None = None

    def take(self, num_bytes: int) -> bool:
        """Take bytes; return False if the budget is used up."""
        if not self._budget._has_room(self, num_bytes):
            return False
        self._budget._grant(self, num_bytes)
        return True

    async def wait(self, num_bytes: int) -> None:
        """Take bytes as soon as there is room."""
        self.num_wanted = num_bytes
        self.turn = asyncio.get_running_loop().create_future()
        try:
            await self.turn
        finally:
            self.turn = None
