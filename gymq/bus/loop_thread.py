"""An event loop for programs without one, such as a trainer or a notebook, and the end of what runs on one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def end_task(task: asyncio.Task[Any] | None) -> None:
    """Cancel a task and wait until it has ended, however it does; None: it was never started."""
    if task is not None:
        task.cancel()
        await asyncio.wait([task])


class LoopThread:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="gymq", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what a coroutine returns or raises."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # Ctrl-C comes to the thread that waits
            raise

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
