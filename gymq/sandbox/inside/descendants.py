"""Find, signal, collect and kill the descendants of this process. Linux only; this process is a subreaper."""

from __future__ import annotations

import os
import signal

_EMPTY_STATES = (b"05", b"06")  # FIN_WAIT2, TIME_WAIT: of a closed connection only the addresses are left


def reap(child: int) -> int | None:
    """Collect all that ended; return the exit status of the program if it did."""
    status = None
    while True:
        try:
            pid, wait_status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status
        if pid == 0:
            return status
        if pid == child:
            status = os.waitstatus_to_exitcode(wait_status)


def use_too_much_memory(everybody: list[int], limit: int) -> bool:
    """Return whether anonymous and shared memory of processes exceed the limit. What the kernel holds is not counted.

    Adding up counts what is shared for each who has it, so it is only a bound. What is above that is measured.
    """
    return sum(map(_most_memory, everybody)) > limit and sum(map(_memory, everybody)) > limit


def orphaned_connections() -> int:
    """Return how many TCP connections of this network no process has: they wait to be accepted, or to be sent.

    The kernel charges their memory to no control group.
    """
    found = 0
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table, "rb") as file:
                rows = [line.split() for line in file.readlines()[1:]]
        except OSError:
            continue
        found += sum(row[9] == b"0" and row[3] not in _EMPTY_STATES for row in rows)
    return found


def pids() -> list[int]:
    """Return the children, their children and so on; as process 1 of a namespace all other processes."""
    if os.getpid() == 1:
        return [int(name) for name in os.listdir("/proc") if name.isdecimal() and name != "1"]
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                parents[int(name)] = int(stat(int(name))[1])
            except (OSError, ValueError):
                continue
    found = {os.getpid()}
    grew = True
    while grew:
        new = {pid for pid, parent in parents.items() if parent in found} - found
        found |= new
        grew = bool(new)
    return list(found - {os.getpid()})


def stat(pid: int, thread: int | str = "") -> list[bytes]:
    """Return what `/proc/PID/stat`, or that of a thread, says after the name: the state first.

    Raises:
        OSError: the process does not exist.
    """
    with open(f"/proc/{pid}/task/{thread}/stat" if thread else f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()


def signal_all(number: int) -> None:
    """Send a signal to them all."""
    for pid in [-1] if os.getpid() == 1 else pids():  # -1: everybody else in the namespace of process 1, in one step
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def end() -> None:
    """Kill them all, and any that they start meanwhile, and collect them."""
    while True:
        signal_all(signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _most_memory(pid: int) -> int:
    """Return the memory of a process. Once its first thread has ended, another one has to say it."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return 0
    names = (b"RssAnon", b"RssShmem", b"VmSwap")
    return next(filter(None, (_sum_of(f"/proc/{pid}/task/{thread}/status", names) for thread in threads)), 0)


def _memory(pid: int) -> int:
    """Return the memory of a process with its part of what it shares. Slow: the kernel goes through it page by page."""
    return _sum_of(f"/proc/{pid}/smaps_rollup", (b"Pss_Anon", b"Pss_Shmem", b"SwapPss")) or _most_memory(pid)


def _sum_of(path: str, names: tuple[bytes, ...]) -> int:
    try:
        with open(path, "rb") as file:
            lines = [line.partition(b":") for line in file]
    except OSError:
        return 0
    return sum(int(value.split()[0]) * 1024 for name, _, value in lines if name in names)
