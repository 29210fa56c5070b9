"""How many requests are on their way to one endpoint at a time, found out by trying.

Additive increase, multiplicative decrease, as in TCP (Chiu and Jain, 1989): an endpoint that says it is asked too
often halves the limit, at most once for the requests that were on their way together; each full round of answers
raises it by one, up to the configured limit.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gymq.authoring import current_call
from gymq.fair_queue import FairQueue

LONGEST_PAUSE_S = 60.0  # an endpoint may wish for more, but no header stops all requests for longer


class AdaptiveLimit:
    """Lets requests through by the priority and the share of their runs."""

    def __init__(self, most: int | None) -> None:
        """
        Args:
            most: requests at a time; None: as many as the endpoint takes.
        """
        self._most: float = math.inf if most is None else most
        self._found = self._most  # what the endpoint was found to take
        self._round = 0  # grows with each decrease
        self._answered = 0  # since the limit changed
        self._resume_at = -math.inf
        self._refused_at = -math.inf
        self._queue: FairQueue[asyncio.Future[None]] = FairQueue()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def now(self) -> float:
        """Requests that may be on their way at a time at present."""
        return min(self._found, self._most)

    def set_most(self, most: int) -> None:
        """Change the configured limit; requests in flight above it finish first."""
        self._found = self._found if self._found < self._most else most
        self._most = most
        self._let_through()

    @property
    def in_flight(self) -> int:
        return self._queue.num_running

    @property
    def held_back(self) -> int:
        """Requests that wait because the endpoint refused others within the last minute."""
        recent = asyncio.get_running_loop().time() - self._refused_at < LONGEST_PAUSE_S
        return self._queue.num_waiting if recent else 0

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[int]:
        """A place among the requests on their way; gives the round that `overloaded` wants to know."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        call = current_call.get()
        self._queue.add(turn, call.rollout, call.precedence)
        self._let_through()
        try:
            await turn
            yield self._round
        finally:
            self._queue.end(turn)
            self._let_through()

    def answered(self) -> None:
        """The endpoint answered a request."""
        self._answered += 1
        if self._answered >= self.now:
            self._answered = 0
            self._found = min(self._found + 1, self._most)

    def overloaded(self, sent_in: int, retry_after_s: float) -> None:
        """The endpoint refused a request because it has too many.

        Args:
            sent_in: the round in which the request was sent.
            retry_after_s: how long the endpoint wants to be left alone.
        """
        if sent_in == self._round:
            self._round += 1
            self._answered = 0
            self._found = max(1, min(self.in_flight, self.now) // 2)
        loop = asyncio.get_running_loop()
        self._refused_at = loop.time()
        self._resume_at = max(self._resume_at, loop.time() + min(retry_after_s, LONGEST_PAUSE_S))

    def _has_room(self) -> bool:
        return self.in_flight < self.now and asyncio.get_running_loop().time() >= self._resume_at

    def _let_through(self) -> None:
        while self._queue.num_waiting and self._has_room():
            turn = self._queue.pop()
            if not turn.done():  # else it was cancelled, and ends at once
                turn.set_result(None)
        loop = asyncio.get_running_loop()
        if self._queue.num_waiting and loop.time() < self._resume_at and self._timer is None:
            self._timer = loop.call_at(self._resume_at, self._resume)

    def _resume(self) -> None:
        self._timer = None
        self._let_through()
