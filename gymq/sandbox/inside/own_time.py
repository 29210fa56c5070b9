"""Time that a program takes by itself, so that no neighbour can use it up."""

from __future__ import annotations

import os
import time

from . import descendants

TYPE_CHECKING = False
if TYPE_CHECKING:  # the import would take longer than the rest
    from .group import ProgramGroup

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_RUNS, _WAITS, _ENDED = b"R", b"D", b""  # states: wants a processor, waits for a disk, ended while it was looked at
_VFORK = {"x86_64": b"58"}  # numbers of system calls; elsewhere vfork is a form of clone
_CLONE = {"x86_64": b"56", "aarch64": b"220"}


class OwnTime:
    """Seconds of computing of all processes together, and those in which none of them wanted to compute.

    Where a process waits for a processor that others have, or for a disk, the time is not the program's own.

    Args:
        group: the program's control group. Without one, the computing of children that no parent waits for is missing.

    Attributes:
        seconds: the program's own time.
    """

    def __init__(self, group: ProgramGroup | None) -> None:
        self._group = group
        self.seconds = 0.0
        self._passed = self._kept = self._others = 0.0
        self._looked = time.monotonic()
        everybody = descendants.pids()
        self._computed = self._total(everybody)
        self._waited = _waited(everybody)[0]
        self._kept_waiting = _wait("/proc/self")

    def look(self, everybody: list[int], late_s: float) -> None:
        """Count the time since the last look.

        Args:
            everybody: the program's processes.
            late_s: seconds by which this look is late. Then the machine stood still, or others had it.
        """
        now = time.monotonic()
        passed, self._looked = now - self._looked, now
        total = self._total(everybody)
        computed, self._computed = max(0.0, total - self._computed), total
        running = _running()
        waited, states = _waited(everybody)
        lost = sum(seconds - self._waited.get(task, 0.0) for task, seconds in waited.items())
        self._waited = waited
        # The kernel counts a wait at its end. Until then only computing counts.
        self.seconds += computed if _RUNS in states or _WAITS in states else max(computed, passed - max(lost, late_s))
        kept_waiting = _wait("/proc/self")
        others = running - states.count(_RUNS) - states.count(_ENDED) - 1  # this process runs, too
        kept = max(kept_waiting - self._kept_waiting, late_s)
        self._kept += passed if _WAITS in states or not running else min(passed, kept)
        self._kept_waiting = kept_waiting
        self._passed += passed
        self._others += passed * others

    def excused(self) -> float:
        """Return the seconds in which the machine may have kept the program from computing, whatever else it did.

        How many others want a processor is known for moments only, in which its own processes begin and end: on average
        over all of them it is known well.
        """
        return self._passed if self._others >= self._passed * len(os.sched_getaffinity(0)) else self._kept

    def _total(self, everybody: list[int]) -> float:
        return _computed(everybody) if self._group is None else self._group.computed()


def _computed(everybody: list[int]) -> float:
    """Return the seconds of computing of these processes, and of all that they and this one have waited for."""
    own = os.times()
    total = own.children_user + own.children_system
    for pid in everybody:
        try:
            total += sum(map(int, descendants.stat(pid)[11:15])) * _TICK_S  # utime, stime, cutime, cstime
        except (OSError, ValueError):
            continue
    return total


def _waited(everybody: list[int]) -> tuple[dict[str, float], list[bytes]]:
    """Return for how long each thread waited for a processor, and the states of all threads."""
    waited: dict[str, float] = {}
    states = []
    for pid in everybody:
        try:
            tasks = [f"/proc/{pid}/task/{name}" for name in os.listdir(f"/proc/{pid}/task")]
        except OSError:
            states.append(_ENDED)
            continue
        for task in tasks:
            try:
                with open(f"{task}/stat", "rb") as file:
                    state = file.read().rpartition(b")")[2].split()[0]
                states.append(b"S" if state == _WAITS and _waits_for_child(task) else state)
                waited[task] = _wait(task)
            except (OSError, ValueError, IndexError):
                states.append(_ENDED)
    return waited, states


def _running() -> int:
    """Return how many threads of the machine want to compute; 0 if the kernel does not say."""
    try:
        with open("/proc/loadavg", "rb") as file:
            return int(file.read().split()[3].partition(b"/")[0])
    except (OSError, ValueError, IndexError):
        return 0


def _wait(task: str) -> float:
    """Return how long a thread waited for a processor; 0 on kernels that do not say."""
    try:
        with open(f"{task}/schedstat", "rb") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def _waits_for_child(task: str) -> bool:
    """Return whether a thread lent its memory to a child and waits for it, which looks like waiting for a disk."""
    try:
        with open(f"{task}/syscall", "rb") as file:
            number, flags = file.read().split()[:2]
        machine, clone_vfork = os.uname().machine, 0x4000
        return number == _VFORK.get(machine) or (number == _CLONE.get(machine) and bool(int(flags, 16) & clone_vfork))
    except (OSError, ValueError):
        return False
