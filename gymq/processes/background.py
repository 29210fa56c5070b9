"""Tasks that run beside the one that starts them: kept until they end, waited for, ended."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class RunningTasks(set[asyncio.Task[Any]]):
    """The tasks that have not ended yet. They are kept here, since an event loop keeps no task alive by itself."""

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a task."""
        task = asyncio.get_running_loop().create_task(work)
        self.add(task)
        task.add_done_callback(self.discard)
        return task


async def end_task(task: asyncio.Task[Any] | None) -> None:
    """Cancel a task and wait until it has ended, however it does; None: it was never started."""
    if task is not None:
        task.cancel()
        await asyncio.wait([task])


def was_suspended(due: float) -> bool:
    """Return whether this process did not run when something was due, so that messages may be unread.

    Args:
        due: on the event loop's clock, in seconds; a timer is at most half a second late.
    """
    return asyncio.get_running_loop().time() - due > 0.5


async def is_set_within(event: asyncio.Event, timeout_s: float) -> bool:
    """Wait until an event is set, for so many seconds at most; return whether it is."""
    try:
        async with asyncio.timeout(timeout_s):
            return await event.wait()
    except TimeoutError:
        return False
