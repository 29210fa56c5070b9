"""Time that a program takes by itself, so that no neighbour can use it up."""

from __future__ import annotations

import os
import time

from . import descendants
from .group import ProgramGroup

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_RUNS, _WAITS = b"R", b"D"  # states: wants a processor, waits for a disk


class OwnTime:
    """Seconds of computing of all processes together, and those in which none of them wanted to compute.

    Where a process waits for a processor that others have, or for a disk, the time is not the program's own.

    Args:
        group: the program's control group. Without one, the computing of children that no parent waits for is missing.

    Attributes:
        seconds: the program's own time.
        disk_s: seconds in which it waited for a disk, or for a child that it lent its memory, which looks the same.
    """

    def __init__(self, group: ProgramGroup | None) -> None:
        self._group = group
        self.seconds = self.disk_s = 0.0
        self._looked = time.monotonic()
        self._computed = self._total(descendants.pids())

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
        states = _states(everybody)
        if _RUNS in states:
            self.seconds += computed
        elif _WAITS in states:
            self.seconds += computed
            self.disk_s += passed
        else:
            self.seconds += max(computed, passed - late_s)

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


def _states(everybody: list[int]) -> set[bytes]:
    found = set()
    for pid in everybody:
        try:
            for thread in os.listdir(f"/proc/{pid}/task"):
                found.add(descendants.stat(pid, thread)[0])
        except (OSError, IndexError):
            continue
    return found
