"""Measuring how long an event loop is held, and processes that keep the processors busy."""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import psutil

# It ends with its parent, even if that is killed.
_BUSY_LOOP = "import os, sys\nparent = int(sys.argv[1])\nwhile os.getppid() == parent: pass"

_T = TypeVar("_T")


def in_time(items: Iterable[_T], limit_s: float) -> Iterator[_T]:
    """Yield items until a time limit; at least the first one.

    Args:
        limit_s: seconds, from the first item on.
    """
    end = time.monotonic() + limit_s
    for number, item in enumerate(items):
        if number > 0 and time.monotonic() > end:
            return
        yield item


def processor_s() -> float:
    """Return the processor seconds of this thread and of all processes below it, those that ended too."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = time.thread_time() + ended.ru_utime + ended.ru_stime
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess, OSError):
            used = child.cpu_times()
            seconds += used.user + used.system + used.children_user + used.children_system
    return seconds


class LoopTimer:
    """Measures how long callbacks hold the event loop of this thread.

    Time that a callback waits for a processor is not counted, so other processes do not matter; time that it computes
    or sleeps is.

    Attributes:
        callbacks: number of measured callbacks; 0 if the loop is not asyncio's own.
    """

    def __init__(self) -> None:
        self.callbacks = 0
        self._longest_s = 0.0

    def lap_s(self) -> float:
        """Return how long the longest callback since the last lap held the loop, in seconds."""
        longest_s, self._longest_s = self._longest_s, 0.0
        return longest_s

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Measure within this context."""
        # No public interface measures every callback: the debug mode of asyncio measures by the clock alone.
        handle: Any = asyncio.Handle
        run = handle._run
        with _HeldTime() as held:

            def measured(self_: asyncio.Handle) -> None:
                before = held()
                try:
                    run(self_)
                finally:
                    if handle._run is measured:  # else the watch has ended within this callback
                        self._record(held() - before)

            handle._run = measured
            try:
                yield
            finally:
                handle._run = run

    def _record(self, held_s: float) -> None:
        self.callbacks += 1
        self._longest_s = max(self._longest_s, held_s)


class _HeldTime:
    """A clock of this thread that stands still while the thread waits for a processor."""

    def __init__(self) -> None:
        self._file: int | None = None

    def __enter__(self) -> _HeldTime:
        with suppress(OSError):  # not Linux, or a kernel without statistics of its scheduler
            self._file = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            os.close(self._file)

    def __call__(self) -> float:
        if self._file is None:
            return time.thread_time()
        waited_ns = int(os.pread(self._file, 100, 0).split()[1])
        return time.monotonic() - waited_ns / 1e9


@contextmanager
def busy_neighbours(count: int) -> Iterator[None]:
    """Run `count` processes that only compute."""
    command = [sys.executable, "-S", "-c", _BUSY_LOOP, str(os.getpid())]
    processes = [subprocess.Popen(command, stdin=subprocess.DEVNULL) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()
