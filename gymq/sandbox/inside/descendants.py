"""What came from this process and still runs: looked at, collected and ended. Linux; this process is a subreaper."""

from __future__ import annotations

import os
import signal

_PAGE = os.sysconf("SC_PAGE_SIZE")


def reap(child: int) -> int | None:
    """Collect whoever ended; the exit status of the program if it did."""
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


def memory() -> int:
    """Bytes of memory that are no part of files. What was shared by a fork counts for each."""
    total = 0
    for pid in pids():
        try:
            with open(f"/proc/{pid}/statm") as file:
                _, resident, shared, *_ = map(int, file.read().split())
        except (OSError, ValueError):
            continue
        total += (resident - shared) * _PAGE
    return total


def pids() -> list[int]:
    """Children, their children and so on; as process 1 of a namespace everybody else."""
    if os.getpid() == 1:
        return [int(name) for name in os.listdir("/proc") if name.isdecimal() and name != "1"]
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    parents[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
            except (OSError, ValueError):
                continue
    found = {os.getpid()}
    grew = True
    while grew:
        new = {pid for pid, parent in parents.items() if parent in found} - found
        found |= new
        grew = bool(new)
    return list(found - {os.getpid()})


def end() -> None:
    """Kill them all, and whatever they start meanwhile, and collect them."""
    while True:
        for pid in pids():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return
