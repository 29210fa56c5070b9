"""Rounds of the event loop, over which large numbers of starts are spread.

Between two rounds the loop reads messages and runs timers. A computation of even 20 ms must not be done a thousand
times in one round: calls would not be accepted, nor probes answered, before the last of them, and their callers would
time out.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

SLOW_ROUND_S = 0.02
MOST_STARTED = 32  # in one round, where rounds are not slow


class Starter:
    """Starts things, a few in each round; one only while rounds are slow."""

    def __init__(self, start_one: Callable[[], bool]) -> None:
        """Prepare to start things.

        Args:
            start_one: starts the next thing; returns False if there is none now.
        """
        self._start_one = start_one
        self._at_once = 1
        self._num_now = 0  # started since the last round
        self._handle: asyncio.Handle | None = None

    def schedule(self) -> None:
        """Schedule a round, since there may be something to start."""
        if self._handle is None:
            loop = asyncio.get_running_loop()
            self._handle = loop.call_soon(self._round, loop.time())

    def start_now(self) -> None:
        """Start the next thing before the next round, unless many were: what asks for it runs in rounds itself."""
        self.schedule()
        if self._num_now < MOST_STARTED and self._start_one():
            self._num_now += 1

    def _round(self, asked_at: float) -> None:
        self._handle = None
        self._num_now = 0
        slow = asyncio.get_running_loop().time() - asked_at > SLOW_ROUND_S
        self._at_once = 1 if slow else min(MOST_STARTED, 2 * self._at_once)
        if all(self._start_one() for _ in range(self._at_once)):
            self.schedule()


class Turns:
    """Lets one task at a time compute, and each in a round of its own."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    @asynccontextmanager
    async def take(self) -> AsyncIterator[None]:
        """Reserve a round of the event loop for the body, and for what follows it up to the next `await` that waits."""
        async with self._lock:
            await asyncio.sleep(0)
            yield
