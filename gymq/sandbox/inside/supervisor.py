"""Starting the program with its limits, watching it, and ending everything it left."""

from __future__ import annotations

import math
import os
import resource
import select
import signal
import time

from . import descendants, kernel
from .spec import Spec

TYPE_CHECKING = False
if TYPE_CHECKING:  # the import would take longer than the rest
    from typing import NoReturn

_PAUSE_S = 0.05  # between two looks at the memory
_FIRST_UID = 500_000_000
_FIRST_UID_IN_CONTAINER = 10_000  # where only the first 65,536 users exist
_NOT_STARTED = 125  # exit status of the child when the reason is in the pipe


def own_uid() -> int:
    """A user that nobody else on the machine is, as long as this process lives: it is made of its number.

    So one run cannot signal another, and the limit of processes counts only its own.
    """
    process = int(os.readlink("/proc/self"))
    with open("/proc/self/uid_map") as file:
        num_users = max(int(line.split()[2]) for line in file)
    if num_users > _FIRST_UID + process:
        return _FIRST_UID + process
    return _FIRST_UID_IN_CONTAINER + process % 50_000


def supervise(spec: Spec, uid: int | None, lifeline_fd: int) -> str:
    """Run the program to its end, or to the end of its limits or of its owner.

    Returns:
        The report: exit status as Python's subprocess has it, the limit that was hit or "-", seconds.

    Raises:
        OSError: it could not be started.
    """
    kernel.become_subreaper()
    began = time.monotonic()
    child = _start(spec, uid)
    limit, status = _watch(spec, child, lifeline_fd, began)
    _end_all(child, uid)
    if status is None:
        status = -signal.SIGKILL
    if limit is None:
        limit = {-signal.SIGXCPU: "cpu", -signal.SIGXFSZ: "file"}.get(status)
    return f"{status} {limit or '-'} {time.monotonic() - began}"


def _start(spec: Spec, uid: int | None) -> int:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        _become_program(spec, uid, writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        problem = pipe.read()
    if problem:
        os.waitpid(child, 0)
        raise OSError(problem.decode())
    for fd in (0, 1, 2):  # so that whoever reads the program's output sees its end
        os.close(fd)
    return child


def _become_program(spec: Spec, uid: int | None, writer: int) -> NoReturn:
    try:
        os.setsid()
        os.closerange(3, writer)
        os.closerange(writer + 1, 4096)
        _set_limits(spec, 0 if uid is not None else _processes_of(os.getuid()) - 1)
        os.umask(0o022)
        kernel.drop_bounding_set()
        if uid is not None:
            _become(uid)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores, and programs would inherit that
            signal.signal(number, signal.SIG_DFL)
        kernel.drop_privileges()
        kernel.refuse_system_calls(sockets=not spec.own_network)
        os.chdir(spec.directory)
        os.execvpe(spec.argv[0], spec.argv, spec.env)
    except BaseException as error:
        os.write(writer, f"{spec.argv[0]}: {error}".encode()[:4000])
    os._exit(_NOT_STARTED)


def _become(uid: int) -> None:
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def _set_limits(spec: Spec, others: int) -> None:
    """`others`: processes that count for the same user and are none of the program's."""

    def limit(which: int, value: int, hard: int | None = None) -> None:
        allowed = resource.getrlimit(which)[1]
        if allowed != resource.RLIM_INFINITY:
            value, hard = min(value, allowed), min(hard or value, allowed)
        resource.setrlimit(which, (value, hard or value))

    if spec.cpu_s is not None:
        seconds = math.ceil(spec.cpu_s)
        limit(resource.RLIMIT_CPU, seconds, seconds + 1)
    limit(resource.RLIMIT_AS, spec.memory_bytes)
    limit(resource.RLIMIT_FSIZE, spec.file_bytes)
    limit(resource.RLIMIT_NPROC, spec.processes + others)
    limit(resource.RLIMIT_NOFILE, 256)
    limit(resource.RLIMIT_CORE, 0)


def _watch(spec: Spec, child: int, lifeline_fd: int, began: float) -> tuple[str | None, int | None]:
    """The limit that was hit, and the exit status if the program ended by itself."""
    ended = os.pidfd_open(child)
    while True:
        pause = _PAUSE_S
        if spec.wall_s is not None:
            pause = min(pause, max(0.0, began + spec.wall_s - time.monotonic()))
        ready, _, _ = select.select([ended, lifeline_fd], [], [], pause)
        status = descendants.reap(child)
        if status is not None:
            return None, status
        if lifeline_fd in ready:
            return "owner", None
        if spec.wall_s is not None and time.monotonic() - began >= spec.wall_s:
            return "wall", None
        if descendants.memory() > spec.memory_bytes:
            return "memory", None


def _processes_of(uid: int) -> int:
    total = 0
    for name in os.listdir("/proc"):
        try:
            if name.isdecimal() and os.stat(f"/proc/{name}").st_uid == uid:
                total += len(os.listdir(f"/proc/{name}/task"))
        except OSError:
            continue
    return total


def _end_all(child: int, uid: int | None) -> None:
    """Kill everything that came from the program. As process 1 of its namespace our own end does that."""
    if os.getpid() == 1:
        return
    if uid is not None:
        killer = os.fork()
        if killer == 0:
            _become(uid)
            os.kill(-1, signal.SIGKILL)
            os._exit(0)
        os.waitpid(killer, 0)
    descendants.end()
