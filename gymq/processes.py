"""Computations that may take too long, in processes that can be killed.

The pool is Pebble's: its workers are ended at a task's time limit, which the standard library's pools cannot do.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from pebble import ProcessExpired, ProcessPool

from gymq import file_modules, parent_death

P = ParamSpec("P")
T = TypeVar("T")


class KillableProcesses:
    """A bounded pool of processes; started at the first use.

    Args:
        max_workers: processes at a time; default: one per core.
        prepare: run once in each new process, outside of any time limit; for example a heavy import.
    """

    def __init__(self, max_workers: int | None = None, prepare: Callable[[], None] | None = None) -> None:
        self._max_workers = max_workers or os.cpu_count() or 1
        self._prepare = prepare
        self._pool: ProcessPool | None = None

    async def run(self, timeout_s: float, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """`function(*args, **kwargs)` in a process. Function, arguments and result must be picklable.

        Args:
            timeout_s: seconds of computing; waiting for a free process does not count.

        Raises:
            TimeoutError: it did not finish in time and its process was killed.
            ChildProcessError: its process died.
            Exception: whatever the function raised.
        """
        if self._pool is None:
            # forkserver: a child never inherits our sockets, locks or half-written buffers.
            context = multiprocessing.get_context("forkserver")
            context.set_forkserver_preload(["gymq.end_with_parent", "__main__"])
            self._pool = ProcessPool(self._max_workers, initializer=_begin, initargs=(self._prepare,), context=context)
        future = self._pool.schedule(function, args=list(args), kwargs=kwargs, timeout=timeout_s)
        try:
            result: T = await asyncio.wrap_future(future)
            return result
        except ProcessExpired as error:
            raise ChildProcessError(f"the process died with exit code {error.exitcode}") from None
        finally:
            future.cancel()  # type: ignore[no-untyped-call]

    def close(self) -> None:
        """Kill what still runs."""
        if self._pool is not None:
            self._pool.stop()  # type: ignore[no-untyped-call]
            self._pool.join()
            self._pool = None


def _begin(prepare: Callable[[], None] | None) -> None:
    """Runs first in each process."""
    file_modules.install()
    # The parent is the fork server, which ends with our own process: what computes for nobody must not go on.
    parent_death.die_with_parent(os.getppid())
    if prepare is not None:
        prepare()
