"""Computations that may take too long, in processes that can be killed.

The pool is Pebble's: its workers are ended at a task's time limit, which the standard library's pools cannot do.
"""

from __future__ import annotations

import asyncio
import math
import multiprocessing
import os
import pickle
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import forkserver
from typing import Any, ParamSpec, TypeVar

from pebble import ProcessExpired, ProcessPool

from gymq import credentials, file_modules, parent_death

NICE = 5

P = ParamSpec("P")
T = TypeVar("T")


class CpuTimeUsedUp(Exception):
    """A computation needed more processor time than it is given. Unlike a timeout this says something about it."""


class KillableProcesses:
    """A bounded pool of processes; started at the first use.

    Args:
        max_workers: processes at a time; default: one per core.
        prepare: run once in each new process, outside of any time limit; for example a heavy import.
        cpu_s: seconds of processor time for one computation, rounded up; None: no limit but that on the time it takes.
        max_memory_bytes: address space of each process, beyond which it gets a MemoryError; None: no limit. Systems
            that have no such limit, like macOS, set none.
    """

    def __init__(
        self,
        max_workers: int | None = None,
        prepare: Callable[[], None] | None = None,
        cpu_s: float | None = None,
        max_memory_bytes: int | None = None,
    ) -> None:
        self._max_workers = max_workers or os.cpu_count() or 1
        self._prepare = prepare
        self._cpu_s = cpu_s
        self._max_memory_bytes = max_memory_bytes
        self._pool: ProcessPool | None = None
        self._futures: set[Any] = set()

    async def run(self, timeout_s: float, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """`function(*args, **kwargs)` in a process. Function, arguments and result must be picklable.

        Args:
            timeout_s: seconds until it is given up; waiting for a free process does not count.

        Raises:
            TimeoutError: it did not finish in time and its process was killed.
            CpuTimeUsedUp: it used up its processor time and its process was killed.
            ChildProcessError: its process died.
            Exception: whatever the function raised.
        """
        if self._pool is None:
            # forkserver: a child never inherits our sockets, locks or half-written buffers.
            context = multiprocessing.get_context("forkserver")
            begin = (self._prepare, self._max_memory_bytes)
            self._pool = ProcessPool(self._max_workers, initializer=_begin, initargs=begin, context=context)
        work = _Work(pickle.dumps((function, args, kwargs)))
        future: Any = self._pool.schedule(_answer, args=[work, self._cpu_s], timeout=timeout_s)
        self._futures.add(future)
        try:
            succeeded, value = pickle.loads(await asyncio.wrap_future(future))
        except ProcessExpired as error:
            if self._cpu_s is not None and error.exitcode == -signal.SIGXCPU:
                raise CpuTimeUsedUp(f"more than {self._cpu_s:g} s of processor time") from None
            raise ChildProcessError(f"the process died with exit code {error.exitcode}") from None
        finally:
            self._futures.discard(future)
            future.cancel()
        if not succeeded:
            raise value
        result: T = value
        return result

    def close(self) -> None:
        """Kill what still runs."""
        for future in list(self._futures):
            future.cancel()
        if self._pool is not None:
            self._pool.stop()  # type: ignore[no-untyped-call]
            self._pool.join()
            self._pool = None


class _Work:
    """A function and its arguments.

    They are unpickled as this is, before the time limit begins, since that may import much. What goes wrong there is
    kept for later: it would end the process, and with enough processes the pool.
    """

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._call: Any = None
        self._error: BaseException | None = None

    def __getstate__(self) -> bytes:
        return self._body

    def __setstate__(self, body: bytes) -> None:
        self.__init__(body)  # type: ignore[misc]
        try:
            self._call = pickle.loads(body)
        except BaseException as error:
            self._error = error

    def do(self) -> Any:
        if self._error is not None:
            raise self._error
        function, args, kwargs = self._call
        return function(*args, **kwargs)


def _answer(work: _Work, cpu_s: float | None) -> bytes:
    """Runs in a process: whether the function succeeded, and its result or error, in a form that surely arrives.

    The pool itself breaks for good over an error that cannot be unpickled, and sys.exit() would end whoever waits.
    """
    try:
        with _cpu_limit(cpu_s):
            return pickle.dumps((True, work.do()))
    except SystemExit as error:
        return pickle.dumps((False, ChildProcessError(f"the process exited with status {error.code}")))
    except Exception as error:
        return _portable(error)


@contextmanager
def _cpu_limit(cpu_s: float | None) -> Iterator[None]:
    """The kernel ends this process when what is done here has used up its processor time."""
    if cpu_s is None:
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_CPU)
    used = resource.getrusage(resource.RUSAGE_SELF)
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(used.ru_utime + used.ru_stime + cpu_s), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_CPU, before)


def _portable(error: Exception) -> bytes:
    try:
        body = pickle.dumps((False, error))
        pickle.loads(body)
        return body
    except Exception:
        return pickle.dumps((False, RuntimeError(f"{type(error).__name__}: {error}")))


def _begin(prepare: Callable[[], None] | None, max_memory_bytes: int | None) -> None:
    """Runs first in each process."""
    # Whoever waits for a result can wait; the event loops that answer calls cannot.
    os.nice(NICE)
    file_modules.install()
    # What computes for nobody must not go on. The parent is the fork server, and that ends with its owner as soon as
    # nobody else holds the pipe by which it notices; each process is handed an end of it.
    os.close(forkserver._forkserver._forkserver_alive_fd)  # type: ignore[attr-defined]
    parent_death.die_with_parent(os.getppid())
    credentials.hide_memory()  # it is handed rows with their answers
    if max_memory_bytes is not None:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_AS, (max_memory_bytes, resource.RLIM_INFINITY))
    if prepare is not None:
        prepare()
