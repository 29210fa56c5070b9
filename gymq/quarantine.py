"""Keeps what kills a process from taking all that the process works on with it, again and again.

A task that was delivered more than twice is suspect: it was in hand when two processes died, like many innocent ones.
The first suspect in a process works alone in it, which is noted beforehand. If the process dies again, the note tells
that it was this task. If the task ends, the others are probably harmless, and more and more of them work at once.

In the same way a call that has lost two workers is suspect to the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from gymq.messages import FailureClass
from gymq.outcomes import RolloutError

TRUSTED_DELIVERIES = 2
TRUSTED_LOSSES = 1


class Quarantine:
    """The tasks at work in one process."""

    def __init__(self) -> None:
        self._trusted = 0  # at work
        self._suspects = 0  # at work
        self._suspects_waiting = 0
        self._width = 1  # suspects that may be at work at once; 1 until one has ended well
        self._changed = asyncio.Event()

    @asynccontextmanager
    async def trusted(self) -> AsyncIterator[None]:
        """A place for a task beyond suspicion."""
        while self._width == 1 and (self._suspects or self._suspects_waiting):
            await self._changed.wait()
        self._trusted += 1
        try:
            yield
        finally:
            self._trusted -= 1
            self._tell()

    @asynccontextmanager
    async def suspect(self) -> AsyncIterator[bool]:
        """A place for a suspect; whether it is alone in the process for as long as it works."""
        self._suspects_waiting += 1
        try:
            while self._suspects >= self._width or (self._width == 1 and self._trusted):
                await self._changed.wait()
        finally:
            self._suspects_waiting -= 1
            self._tell()
        alone = self._width == 1
        self._suspects += 1
        try:
            yield alone
        finally:
            self._suspects -= 1
            self._tell()

    def ended_well(self) -> None:
        """A suspect did its work, and the process lives: from now on one more may be at work."""
        self._width += 1

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class SuspectCalls:
    """The suspect calls that one process works on.

    A call that has lost two workers works with other such calls: first one, then one more after each that ends. A call
    that has lost more works alone among them. The others are turned away, not kept waiting: whoever waits in a process
    that dies counts as lost with it.
    """

    def __init__(self) -> None:
        self._at_work = 0
        self._width = 1
        self._one_is_alone = False

    @contextmanager
    def place(self, num_lost: int) -> Iterator[None]:
        """A place for a suspect call.

        Raises:
            RolloutError: SATURATED, all are taken.
        """
        alone = num_lost > TRUSTED_LOSSES + 1
        if self._at_work >= (1 if alone or self._one_is_alone else self._width):
            raise RolloutError(FailureClass.SATURATED, "other calls that have lost workers are tried first")
        self._at_work += 1
        self._one_is_alone = alone
        try:
            yield
        finally:
            self._at_work -= 1
            self._one_is_alone = False
            self._width += 1
