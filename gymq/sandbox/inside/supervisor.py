"""The supervisor of one sandboxed program: `SPEC_FD LIFELINE_FD REPORT_FD [GROUP_FD ...]`.

It builds the program's view of the file system, starts it with limits and without privileges, watches it, ends all that
it left running, and reports. It reads no environment.

The lifeline is the reading end of a pipe of which the owner holds the other end: it closes when the owner wants the
end, and also when the owner dies. On it the owner of a session says when a step begins and when it is over.
"""

from __future__ import annotations

import marshal
import math
import os
import resource
import select
import signal
import struct
import sys
import time
import warnings  # noqa: F401 - `os.execvpe` imports it, where it may be out of the program's reach

from . import descendants, disk, kernel, landlock, system_calls, view
from .group import ProgramGroup
from .own_time import OwnTime
from .spec import Spec

TYPE_CHECKING = False
if TYPE_CHECKING:  # the import would take longer than the rest
    from typing import NoReturn

_PAUSE_S = 0.05  # between two looks
STEP = struct.Struct("=dd")  # seconds that a step may take of its own and on the clock; 0: it is over
_FIRST_UID = 500_000_000


def main() -> None:
    spec_fd, lifeline_fd, report_fd, *group_fds = map(int, sys.argv[2:])
    with open(spec_fd, "rb") as file:
        spec = Spec(marshal.load(file))
    for fd in (lifeline_fd, report_fd, *group_fds):
        os.set_inheritable(fd, False)
    try:
        kernel.set_undumpable()
        uid = _own_uid() if spec.changes_user else None
        if spec.builds_view:
            view.build(spec, os.getuid() if uid is None else uid)
        view.fill(spec, uid)
        group = ProgramGroup(group_fds, spec.group_bytes) if group_fds else None
        report = _supervise(spec, uid, lifeline_fd, group)
    except (OSError, ValueError, MemoryError) as error:
        report = f"failed {type(error).__name__}: {error}"
    os.write(report_fd, report.encode())


def _own_uid() -> int:
    """Return a user id that no other process of the machine has while this one lives: it is derived from its number.

    So one run cannot signal another, and the limit of processes counts only its own.
    """
    process = int(os.readlink("/proc/self"))
    with open("/proc/self/uid_map") as file:
        num_users = max(int(line.split()[2]) for line in file)
    if num_users > _FIRST_UID + process:
        return _FIRST_UID + process
    return 10_000 + process % 50_000  # in containers only the first 65,536 users may exist


def _supervise(spec: Spec, uid: int | None, lifeline_fd: int, group: ProgramGroup | None) -> str:
    """Run the program to its end, or to the end of its limits or of its owner.

    Returns:
        The report: exit status as Python's subprocess has it, the limit that was hit or "-", seconds.
    """
    kernel.become_subreaper()
    began = time.monotonic()
    given, _ = disk.taken(spec)
    child = _start(spec, uid, group)
    try:
        watch = _Watch(spec, child, lifeline_fd, given, group)
        limit, status = watch.until_the_end()
        if group is not None and group.ran_out_of_memory():
            limit = "memory"
        if limit is None and watch.disk_is_full():  # it may have written faster than it was looked at
            limit = "disk"
    finally:
        descendants.end()
    if status is None:
        status = -signal.SIGKILL
    if limit is None and status == -signal.SIGXFSZ:
        limit = "file"
    return f"{status} {limit or '-'} {time.monotonic() - began}"


def _start(spec: Spec, uid: int | None, group: ProgramGroup | None) -> int:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        _become_program(spec, uid, group, writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        problem = pipe.read()
    if problem:
        os.waitpid(child, 0)
        raise OSError(problem.decode())
    for fd in (0, 1, 2):  # so that the reader of the program's output sees its end
        os.close(fd)
    return child


def _become_program(spec: Spec, uid: int | None, group: ProgramGroup | None, writer: int) -> NoReturn:
    try:
        if group is not None:
            group.enter()
        os.setsid()  # for the scheduler a group of its own, too
        os.nice(5)  # those who wait for programs come first
        _limit(resource.RLIMIT_AS, spec.memory_bytes)
        _limit(resource.RLIMIT_FSIZE, spec.file_bytes)
        _limit(resource.RLIMIT_CORE, 0)
        _limit(resource.RLIMIT_NOFILE, 256)
        if group is None:
            others = 0 if uid is not None else _processes_of(os.getuid()) - 1
            _limit(resource.RLIMIT_NPROC, spec.processes + others)
            # The number of descriptors, of which as many again may be on their way in sockets, is all that bounds what
            # the kernel holds for them: 256 KiB for a socket.
            _limit(resource.RLIMIT_NOFILE, max(32, min(256, spec.memory_bytes // (spec.processes + 1) // 2**18)))
        os.umask(0o022)
        if uid is not None:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores, and programs would inherit that
            signal.signal(number, signal.SIG_DFL)
        kernel.drop_privileges()
        supervisor = os.getppid()
        # What runs as the same user could signal and limit it.
        guarded = (supervisor, -supervisor & 0xFFFFFFFF) if uid is None else ()
        if spec.confines_files:
            landlock.confine(spec.view, spec.directory)
        # Without a control group nothing bounds what sockets hold that no process has.
        system_calls.refuse_others(spec.own_view and group is not None, guarded)
        os.chdir(spec.directory)
        os.execvpe(spec.argv[0], spec.argv, spec.env)
    except BaseException as error:
        os.write(writer, f"{spec.argv[0]}: {error}".encode()[:4000])
    os._exit(1)


def _limit(which: int, value: int) -> None:
    allowed = resource.getrlimit(which)[1]
    if allowed != resource.RLIM_INFINITY:
        value = min(value, allowed)
    resource.setrlimit(which, (value, value))


class _Watch:
    """Watches a program until it ends, or has to."""

    def __init__(self, spec: Spec, child: int, lifeline_fd: int, given: int, group: ProgramGroup | None) -> None:
        self._spec = spec
        self._child = child
        self._lifeline = lifeline_fd
        self._given = given  # files that it did not make
        self._group = group
        self._is_stopped = False
        self._time_s = math.inf if spec.time_s is None else spec.time_s
        self._clock_s = math.inf if spec.clock_s is None else spec.clock_s
        self._warn_at = math.inf
        self._warned = False
        self._began()

    def until_the_end(self) -> tuple[str | None, int | None]:
        """Wait for the program to end; return the limit that was hit, and the exit status if it ended by itself.

        Raises:
            TimeoutError: the machine did not let it run.
        """
        looked = select.poll()  # which takes descriptors of any number
        looked.register(os.pidfd_open(self._child), select.POLLIN)
        looked.register(self._lifeline, select.POLLIN)
        pause = _PAUSE_S
        while True:
            left = max(0.005, min(self._time_s, self._warn_at) - self._own.seconds)
            look_at = time.monotonic() + min(pause, left)
            ready = [fd for fd, _ in looked.poll(None if self._is_stopped else math.ceil(1000 * min(pause, left)))]
            status = descendants.reap(self._child)
            if status is not None:
                return "time" if status == -signal.SIGALRM and self._warned else None, status
            if self._lifeline in ready and not self._obey():
                return "owner", None
            if self._is_stopped:
                continue
            began = time.monotonic()
            if limit := self._look(max(0.0, began - look_at)):
                return limit, None
            pause = max(_PAUSE_S, 10 * (time.monotonic() - began))  # at most a tenth of the time is spent on looking

    def _look(self, late_s: float) -> str | None:
        everybody = descendants.pids()
        self._own.look(everybody, late_s)
        if self._own.seconds >= self._time_s:
            return "time"
        if self._own.seconds >= self._warn_at:
            self._warn_at, self._warned = math.inf, True
            os.kill(self._child, signal.SIGALRM)
        if self._holds_too_much(everybody):
            return "memory"
        if self.disk_is_full():
            return "disk"
        passed = time.monotonic() - self._begun
        if passed > self._clock_s:
            if self._own.seconds + self._own.disk_s >= self._time_s:
                return "time"
            raise TimeoutError(f"it had {self._own.seconds:.1f} s in {passed:.0f} s: the machine is too busy")
        return None

    def _holds_too_much(self, everybody: list[int]) -> bool:
        if self._group is None:
            return descendants.use_too_much_memory(everybody, self._spec.memory_bytes)
        # No group is charged for the 128 KiB that each of these connections may hold.
        if self._spec.own_view and descendants.orphaned_connections() > 512:
            return True
        return self._group.ran_out_of_memory()

    def disk_is_full(self) -> bool:
        """Return whether there are more files, or more bytes in them, than allowed."""
        files, size = disk.taken(self._spec)
        return files - self._given > self._spec.disk_files or size > self._spec.disk_bytes

    def _obey(self) -> bool:
        """Obey the owner of a session: begin or end a step, with its time. Return False once the session is over."""
        said = os.read(self._lifeline, select.PIPE_BUF)
        if len(said) < STEP.size:
            return False
        # A step that has begun meanwhile must not be stopped for the end of the one before.
        seconds, self._clock_s = STEP.unpack(said[-STEP.size :])
        if seconds == 0:
            descendants.signal_all(signal.SIGSTOP)
            self._is_stopped = True
            return True
        # After the warning, a program may end its step by itself in the last second.
        self._time_s, self._warn_at, self._warned = seconds, max(seconds / 2, seconds - 1.0), False
        self._began()
        if self._is_stopped:
            self._is_stopped = False
            descendants.signal_all(signal.SIGCONT)
        return True

    def _began(self) -> None:
        self._begun = time.monotonic()
        self._own = OwnTime(self._group)


def _processes_of(uid: int) -> int:
    total = 0
    for name in os.listdir("/proc"):
        try:
            if name.isdecimal() and os.stat(f"/proc/{name}").st_uid == uid:
                total += len(os.listdir(f"/proc/{name}/task"))
        except OSError:
            continue
    return total
