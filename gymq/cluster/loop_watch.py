"""Ends the call that blocks the event loop of a worker process, and says where it does.

A verifier that computes without `await` stops everything else in its process. No thread of Python can be relied on to
see it, since a regular expression keeps the interpreter's lock while it matches. The timer is therefore that of
`faulthandler`, which needs no lock: whenever the loop is silent for `TICK_S`, it writes the stack to another process,
which answers with a signal. The signal's handler runs in the midst of what blocks, also within a regular expression,
and raises `LoopBlocked` there once it has taken too long. The call fails, and all others continue.

Native code that handles no signals does not end in this way. The other process then kills this one.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import linecache
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

from gymq.failures import LoopBlocked, Place, innermost_of_author

BEAT_S = 1.0
TICK_S = 1.5  # longer than a beat
MOST_TICKS = 4  # as many as it takes to end a call
MOST_BLOCKED_S = 4.0  # from its first tick to its fourth, which may come late

SIGNAL = signal.SIGUSR2

_RESUMED = b"\0resumed\n"
_TICK, _THREAD, _CUT = b"Timeout (", b"Thread ", b"  ...\n"
_OUTERMOST = b"_run_module_as_main"  # of a worker process, see `gymq.cluster.spawner`
_FRAME = re.compile(rb'  File "([^"]+)", line (\d+) in (.+)\n')


class LoopWatch:
    """The side of the process whose loop is watched, which runs in its main thread."""

    def __init__(self, reader: socket.socket) -> None:
        """Prepare to watch the running loop.

        Args:
            reader: leads to a process that has a `TickReader` for what is written there.
        """
        self._reader = reader
        self._loop = asyncio.get_running_loop()
        self._beating: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[object] | None = None  # in progress at the first tick
        self._first_tick: float | None = None
        self._known: set[tuple[str, str]] = set()  # functions that have blocked the loop, by file and name

    def start(self) -> None:
        """Watch from now on."""
        signal.signal(SIGNAL, self._on_tick)
        self._beat()

    def stop(self) -> None:
        """Watch no more."""
        if self._beating is not None:
            self._beating.cancel()
            faulthandler.cancel_dump_traceback_later()

    def _beat(self) -> None:
        if self._first_tick is not None:
            self._resumed()
        faulthandler.dump_traceback_later(TICK_S, repeat=True, file=self._reader.fileno())
        self._beating = self._loop.call_later(BEAT_S, self._beat)

    def _resumed(self) -> None:
        self._first_tick = self._task = None
        with contextlib.suppress(OSError):  # The reader has left.
            self._reader.sendall(_RESUMED)

    def _on_tick(self, _signal: int, frame: FrameType | None) -> None:
        now, task = time.monotonic(), asyncio.current_task(self._loop)
        if self._first_tick is None or task is not self._task:
            # Counted from here and not from the last beat: the process may have been frozen until now.
            self._first_tick, self._task = now, task
        if (place := innermost_of_author(_stack(frame))) is None:
            return
        function = (place.file, place.function)
        # A call is ended by its fourth tick: it has blocked for 5 to 6 s then. One that has blocked before is ended
        # before callers take this process for dead, and their calls for lost.
        if (seconds := now - self._first_tick) > MOST_BLOCKED_S or function in self._known:
            self._known.add(function)
            self._resumed()
            raise LoopBlocked(blocked(place, seconds + BEAT_S))


@contextlib.contextmanager
def watching_this_process() -> Iterator[None]:
    """Watch the running loop of a process that no process of gymq has started; a shell sends the signal.

    A loop outside of the main thread, which alone handles signals, is not watched, nor is one whose program has its own
    use for the signal.
    """
    in_main_thread = threading.current_thread() is threading.main_thread()
    shell = shutil.which("sh")
    if shell is None or not in_main_thread or signal.getsignal(SIGNAL) is not signal.SIG_DFL:
        yield
        return
    send = f"kill -{SIGNAL.name.removeprefix('SIG')} {os.getpid()}"
    script = f'while read -r line; do case $line in "{_TICK.decode()}"*) sleep 0.2; {send};; esac; done'
    written, read = socket.socketpair()
    with written, read, subprocess.Popen([shell, "-c", script], stdin=read.fileno()) as process:
        read.close()
        watch = LoopWatch(written)
        watch.start()
        try:
            yield
        finally:
            watch.stop()
            signal.signal(SIGNAL, signal.SIG_IGN)  # a last one may be on its way
            written.close()
            process.wait()
            signal.signal(SIGNAL, signal.SIG_DFL)


class TickReader:
    """The side of the process that reads."""

    def __init__(self, *, tick: Callable[[], None], end: Callable[[Place], None]) -> None:
        """Prepare to read.

        Args:
            tick: sends `SIGNAL` to the watched process.
            end: kills it, since it is blocked at a place in an author's code and does not handle the signal.
        """
        self._tick = tick
        self._end = end
        self._num_ticks = 0
        self._stack: list[Place] = []  # of the main thread, whose stack is the last one that is written

    def read(self, line: bytes) -> None:
        """Take a line that the watched process has written."""
        if line.endswith(_RESUMED):
            self._num_ticks = 0
        elif line.startswith(_THREAD):
            self._stack = []
        elif line == _CUT:
            self._written()
        elif (frame := _FRAME.fullmatch(line)) is not None:
            file, number, function = frame.groups()
            self._stack.append(Place(file.decode(), int(number), function.decode()))
            if function == _OUTERMOST:
                self._written()

    def _written(self) -> None:
        """Act on a stack that is complete: the signal changes frames, which are read without a lock."""
        self._num_ticks += 1
        place = innermost_of_author(self._stack)
        if self._num_ticks > MOST_TICKS and place is not None:
            self._end(place)
        else:
            self._tick()


def blocked(place: Place, seconds: float) -> str:
    """Return the sentence about an author's code that blocks."""
    source = linecache.getline(place.file, place.line).strip()[:100]
    return (
        f"{place.function} blocked the event loop of its process for {seconds:.0f} s, in which nothing else ran there, "
        f"at {place.file}:{place.line}: {source}; compute in `verify_in_process`, or with "
        "`await self.compute(function, ...)`"
    )


def _stack(frame: FrameType | None) -> Iterator[Place]:
    while frame is not None:
        yield Place(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
        frame = frame.f_back
