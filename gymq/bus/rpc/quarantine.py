"""Keep a task or call that kills its process from repeatedly taking the other work of the process with it.

A task that was delivered more than twice is suspect: it was in flight when two processes died, like many innocent ones.
The first suspect in a process works alone in it, which is recorded beforehand. If the process dies again, the record
shows that it was this task. A suspect that gets further than any delivery before, or runs for half a minute, is
cleared and works like any other task; the remaining suspects are probably harmless too, and each that is cleared lets
one more of them work at once. Deliveries that ended because a process stopped count as well: the server does not tell
them apart.

In the same way a call that has lost two workers is suspect to the next. If that one dies too, and it was the only
suspect there, the process that started them knows how it ended, and the next worker refuses the call.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager

import msgspec

from gymq.failures import RolloutError
from gymq.protocol.messages import FailureClass

TRUSTED_DELIVERIES = 2
TRUSTED_LOSSES = 1


class Quarantine:
    """The tasks at work in one process."""

    def __init__(self) -> None:
        self._trusted = 0  # at work
        self._suspects = 0  # at work, not cleared
        self._suspects_waiting = 0
        self._width = 1  # suspects that may be at work at once; 1 until one is cleared
        self._changed = asyncio.Event()

    @asynccontextmanager
    async def trusted(self) -> AsyncIterator[None]:
        """Wait for a place for a task that is not suspect, and hold it."""
        while self._width == 1 and (self._suspects or self._suspects_waiting):
            await self._changed.wait()
        self._trusted += 1
        try:
            yield
        finally:
            self._trusted -= 1
            self._notify()

    @asynccontextmanager
    async def suspect(self) -> AsyncIterator[Suspect]:
        """Wait for a place for a suspect, and hold it."""
        self._suspects_waiting += 1
        try:
            while self._suspects >= self._width or (self._width == 1 and self._trusted):
                await self._changed.wait()
        finally:
            self._suspects_waiting -= 1
            self._notify()
        suspect = Suspect(self, alone=self._width == 1)
        self._suspects += 1
        try:
            yield suspect
        finally:
            suspect.has_ended = True
            if suspect.is_cleared:
                self._trusted -= 1
            else:
                self._suspects -= 1
            self._notify()

    def clear_one(self) -> None:
        """Trust one suspect at work: from now on one more may run at a time."""
        self._suspects -= 1
        self._trusted += 1
        self._width += 1
        self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class Suspect:
    """A suspect at work."""

    def __init__(self, quarantine: Quarantine, *, alone: bool) -> None:
        self._quarantine = quarantine
        self.alone = alone  # in the process, until it is cleared
        self.is_cleared = False
        self.has_ended = False

    def clear(self) -> None:
        """Trust the task from now on: it got further than before, and the process is alive."""
        if not (self.is_cleared or self.has_ended):
            self._quarantine.clear_one()
        self.is_cleared = True


class SuspectCall(msgspec.Struct, frozen=True):
    """A call that has lost two workers or more."""

    instance: str
    rollout: str
    num_lost: int


class SuspectCalls:
    """The suspect calls that one process works on.

    A call that has lost two workers works with other such calls: first one, then one more after each that ends. A call
    that has lost more works alone among them. The others are turned away, not kept waiting: a call that waits in a
    process that dies counts as lost with it.
    """

    def __init__(
        self,
        refused: Mapping[str, str] | None = None,
        report: Callable[[list[SuspectCall]], None] = lambda _: None,
    ) -> None:
        """Prepare for the suspects of one process.

        Args:
            refused: why suspect calls of some rollouts are refused, by the rollout.
            report: called with all suspects at work, before one begins and after it has ended.
        """
        self._refused = refused or {}
        self._report = report
        self._at_work: list[SuspectCall] = []
        self._width = 1
        self._one_is_alone = False

    @contextmanager
    def place(self, call: SuspectCall) -> Iterator[None]:
        """Hold a place for a suspect call.

        Raises:
            RolloutError: WORKER_LOST; it is known to end the process. SATURATED; all places are taken.
        """
        if (reason := self._refused.get(call.rollout)) is not None:
            raise RolloutError(FailureClass.WORKER_LOST, reason)
        alone = call.num_lost > TRUSTED_LOSSES + 1
        if len(self._at_work) >= (1 if alone or self._one_is_alone else self._width):
            raise RolloutError(FailureClass.SATURATED, "other suspected calls run first")
        self._at_work.append(call)
        self._one_is_alone = alone
        self._report(self._at_work)
        try:
            yield
        finally:
            self._at_work.remove(call)
            self._report(self._at_work)
            self._one_is_alone = False
            self._width += 1
