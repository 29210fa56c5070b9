"""Computations that may take too long, in processes that can be killed.

Processes are Pebble's: they are ended at a task's time limit, which the standard library's pools cannot do.
"""

from __future__ import annotations

import asyncio
import math
import os
import pickle
import resource
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import forkserver, spawn, util
from multiprocessing.context import ForkServerContext, ForkServerProcess
from typing import Any, ParamSpec, TypeVar

import cloudpickle  # type: ignore[import-untyped]
from pebble import ProcessExpired, ProcessPool

from gymq.errors import GymqError
from gymq.processes import file_modules, memory, parent_death

P = ParamSpec("P")
T = TypeVar("T")


_PRELOADED = [__name__, "gymq.resources"]  # what most computations import, so that not every process does it again


class CpuTimeUsedUp(GymqError):
    """A computation used up its processor time: unlike a timeout, this is not the fault of a busy machine."""


@dataclass(frozen=True)
class ComputeLimits:
    """Limits of a computation, such as the check of a reply.

    If it uses up its processor time, the reply is to blame. If it does not finish in the time on the clock, the machine
    may have been busy, so that limit should be much longer.

    Attributes:
        cpu_s: seconds of processor time.
        timeout_s: seconds until it is killed; waiting for a free process does not count.
        max_memory_bytes: address space of its process, beyond which it gets a MemoryError; None: no limit.
        prepare: run once in each new process, outside of the limits; for example a heavy import.
        max_workers: concurrent processes; default: one per core.
    """

    cpu_s: float
    timeout_s: float
    max_memory_bytes: int | None = None
    prepare: Callable[[], None] | None = None
    max_workers: int | None = None


class KillableProcesses:
    """A bounded pool of processes; started at the first use.

    Args:
        max_workers: concurrent processes; default: one per core.
        prepare: run once in each new process, outside of any time limit; for example a heavy import.
        cpu_s: seconds of processor time for one computation, rounded up; None: no such limit.
        max_memory_bytes: address space of each process, beyond which it gets a MemoryError; None: no limit. Systems
            without such a limit, like macOS, ignore it.
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
        self._free = asyncio.Semaphore(self._max_workers)
        self._calls = 0
        # One pool for each process: a killed process may hold the locks of its pool, which then never answers.
        self._idle: list[ProcessPool] = []
        self._in_use: set[ProcessPool] = set()
        self._futures: set[Any] = set()
        self._limited: dict[tuple[Any, ...], KillableProcesses] = {}

    async def run(self, timeout_s: float, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call `function(*args, **kwargs)` in a process. Function, arguments and result must be picklable.

        Definitions in a notebook or in the program itself travel by value.

        Args:
            timeout_s: seconds until the call is killed; waiting for a free process does not count.

        Raises:
            TimeoutError: it did not finish in time and its process was killed.
            CpuTimeUsedUp: it used up its processor time and its process was killed.
            ChildProcessError: its process died.
            Exception: any error that the function raised.
        """
        work = _Work(cloudpickle.dumps((function, args, kwargs)))
        if not self._calls:  # a semaphore belongs to the event loop of its waiters
            self._free = asyncio.Semaphore(self._max_workers)
        self._calls += 1
        try:
            async with self._free:
                succeeded, value = pickle.loads(await self._computed(work, timeout_s))
        finally:
            self._calls -= 1
        if not succeeded:
            raise value
        result: T = value
        return result

    async def compute(self, limits: ComputeLimits, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function as `run` does, within limits. Computations with the same limits share their processes."""
        settings = (limits.max_workers, limits.prepare, limits.cpu_s, limits.max_memory_bytes)
        if settings not in self._limited:
            self._limited[settings] = KillableProcesses(*settings)
        return await self._limited[settings].run(limits.timeout_s, function, *args, **kwargs)

    async def _computed(self, work: _Work, timeout_s: float) -> bytes:
        """Return the result of `_answer` in a free process."""
        for _ in range(3):
            pool = self._idle.pop() if self._idle else self._new_process()
            self._in_use.add(pool)
            is_usable = True
            try:
                return await self._result(pool, work, timeout_s)
            except BrokenProcessPool:
                is_usable = False
            except ProcessExpired as error:
                is_usable = False
                if self._cpu_s is not None and error.exitcode == -signal.SIGXCPU:
                    raise CpuTimeUsedUp(f"more than {self._cpu_s:g} s of processor time") from None
                raise ChildProcessError(f"the process ended with exit code {error.exitcode}") from None
            finally:
                if pool in self._in_use:  # otherwise `close` has ended it
                    self._in_use.discard(pool)
                    if is_usable:
                        self._idle.append(pool)
                    else:
                        await asyncio.to_thread(_stop, pool)
        raise ChildProcessError("the processes died 3 times before they computed anything")

    def _new_process(self) -> ProcessPool:
        _start_server()  # the queues of a pool would start the resource tracker otherwise
        # forkserver: a child never inherits our sockets, locks or half-written buffers.
        return ProcessPool(1, initializer=_begin, initargs=(self._prepare, self._max_memory_bytes), context=_Context())

    async def _result(self, pool: ProcessPool, work: _Work, timeout_s: float) -> bytes:
        """Wait for the result of `_answer`.

        Raises:
            BrokenProcessPool: the process died before the computation started.
            ProcessExpired: the process died during the computation.
        """
        try:
            future: Any = pool.schedule(_answer, args=[work, self._cpu_s], timeout=timeout_s)
        except RuntimeError as error:  # it died while it had nothing to do
            raise BrokenProcessPool(str(error)) from error
        self._futures.add(future)
        try:
            answer = asyncio.wrap_future(future)
            # A process that dies before it begins leaves its future waiting, so it is looked for.
            while not (await asyncio.wait([answer], timeout=5.0))[0]:
                if not pool.active and not future.done():
                    raise BrokenProcessPool("the process died before it started this computation")
            return bytes(answer.result())
        finally:
            self._futures.discard(future)
            future.cancel()

    def close(self) -> None:
        """Kill all processes that still run."""
        for limited in self._limited.values():
            limited.close()
        for future in list(self._futures):
            future.cancel()
        pools = [*self._idle, *self._in_use]
        self._idle.clear()
        self._in_use.clear()
        for pool in pools:
            pool.stop()  # type: ignore[no-untyped-call]
        for pool in pools:
            _stop(pool)


def _stop(pool: ProcessPool) -> None:
    pool.stop()  # type: ignore[no-untyped-call]
    pool.join()


class _Process(ForkServerProcess):
    """A process that can be killed, and does not run the program's main module again.

    That module may have no `if __name__ == "__main__"`. Nor does it import from the folder that the program is run in,
    unless the program does: it may hold files of strangers.
    """

    @staticmethod
    def _Popen(process_obj: Any) -> Any:
        _start_server()
        with _without_main():
            return ForkServerProcess._Popen(process_obj)

    def terminate(self) -> None:
        """End it at once. Pebble gives a process that ignores SIGTERM three more seconds, in which all others wait."""
        self.kill()


class _Context(ForkServerContext):
    Process = _Process


_replacing = threading.Lock()


@contextmanager
def _without_main() -> Iterator[None]:
    """Keep a new process from importing the main module. multiprocessing has no setting for it."""
    prepared: Callable[[str], dict[str, Any]]
    with _replacing:
        prepared, here = spawn.get_preparation_data, threading.get_ident()

        def without_main(name: str) -> dict[str, Any]:
            data = prepared(name)
            if threading.get_ident() == here:
                data = {key: value for key, value in data.items() if not key.startswith("init_main_from_")}
            return data

        spawn.get_preparation_data = without_main
        try:
            yield
        finally:
            spawn.get_preparation_data = prepared


def _start_server() -> None:
    """Start the fork server and the resource tracker, if they do not run, without the current folder in their path."""
    with _replacing:
        flags = util._args_from_interpreter_flags  # type: ignore[attr-defined]
        util._args_from_interpreter_flags = lambda: [*flags(), "-P"]  # type: ignore[attr-defined]
        try:
            forkserver.set_forkserver_preload(_PRELOADED)
            forkserver.ensure_running()
        finally:
            util._args_from_interpreter_flags = flags  # type: ignore[attr-defined]


class _Work:
    """A function and its arguments.

    They are unpickled together with this object, before the time limit begins, since that may import much. An exception
    there is raised later, by `do`: it would end the process, and with enough processes the pool.
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
    """Run the function in a process of the pool and return its result or error in a form that can always be sent.

    An error that cannot be unpickled would break the pool permanently, and sys.exit() would end its caller.
    """
    try:
        with _cpu_limit(cpu_s):
            return bytes(cloudpickle.dumps((True, work.do())))
    except SystemExit as error:
        return pickle.dumps((False, ChildProcessError(f"the process exited with status {error.code}")))
    except Exception as error:
        return _portable(error)


@contextmanager
def _cpu_limit(cpu_s: float | None) -> Iterator[None]:
    """Limit the processor time of the block; the kernel ends this process when it is used up."""
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
    # Computations may be slow; event loops that answer calls may not.
    os.nice(5)
    file_modules.install()
    # A computation must not outlive its caller. The parent is the fork server, which ends with its owner as soon as no
    # other process holds the pipe by which it notices; each process inherits an end of it.
    os.close(forkserver._forkserver._forkserver_alive_fd)  # type: ignore[attr-defined]
    parent_death.die_with_parent(os.getppid())
    memory.hide_memory()  # it receives rows with their answers
    if max_memory_bytes is not None:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_AS, (max_memory_bytes, resource.RLIM_INFINITY))
    if prepare is not None:
        prepare()
