"""The groups of one request for rollouts, given out as they are completed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

from gymq.errors import GymqError
from gymq.processes.loop_thread import LoopThread
from gymq.trainer.groups import Group
from gymq.trainer.pending_group import PendingGroup


class Batch:
    """The groups of a call, each yielded once. All work continues while no caller iterates."""

    def __init__(
        self,
        pending: Sequence[PendingGroup],
        groups: Sequence[asyncio.Task[PendingGroup]],
        give_out: Callable[[PendingGroup], Awaitable[Group]],
        *,
        in_order: bool,
        thread: LoopThread | None,
    ) -> None:
        self._thread = thread  # where the groups are completed; None: on the caller's event loop
        self._pending = pending
        self._groups = groups
        self._give_out = give_out
        self._in_order = in_order

    def __aiter__(self) -> AsyncGenerator[Group, None]:
        """Yield each group once, in order or as it is completed.

        Raises:
            UsageError, BusError, BadMessage: of the first group that could not be completed; after all others were
                yielded.
        """
        return self.completed() if self._thread is None else self._thread.iterate(self.completed())

    async def completed(self) -> AsyncGenerator[Group, None]:
        """Yield the groups where they are completed."""
        problem: Exception | None = None
        arrived = self._groups if self._in_order else asyncio.as_completed(self._groups)
        try:
            for group in arrived:
                try:
                    completed = await self._give_out(await group)
                except GymqError as error:
                    problem = problem or error
                else:
                    yield completed
        finally:
            # Who leaves the loop waits no longer; the rollouts are made all the same.
            for task in self._groups:
                task.cancel()
        if problem is not None:
            raise problem

    def cut(self) -> None:
        """End now: unfinished rollouts are cancelled, and groups are returned with the samples that they have."""

        def cut() -> None:
            for pending in self._pending:
                pending.cut()

        cut() if self._thread is None else self._thread.do(cut)
