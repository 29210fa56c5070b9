"""Time that a program takes by itself, so that no neighbour can use it up."""

from __future__ import annotations

import os
import time

from . import descendants

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_VFORK = {"x86_64": (b"56", b"58"), "aarch64": (b"220",)}  # numbers of clone and vfork


class OwnTime:
    """Seconds of computing of all processes together, and those in which none of them wanted to compute.

    Where a process waits for a processor that others have, or for a disk, the time is not the program's own.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._looked = time.monotonic()
        everybody = descendants.pids()
        self._computed = _computed(everybody)
        self._waited = _waited(everybody)[0]

    def look(self, everybody: list[int]) -> None:
        """Count the time since the last look.

        Args:
            everybody: the program's processes.
        """
        now = time.monotonic()
        passed, self._looked = now - self._looked, now
        total = _computed(everybody)
        computed, self._computed = max(0.0, total - self._computed), total
        waited, wants = _waited(everybody)
        lost = sum(seconds - self._waited.get(task, 0.0) for task, seconds in waited.items())
        self._waited = waited
        # The kernel counts a wait at its end. Until then only computing counts.
        self.seconds += computed if wants else max(computed, passed - lost)


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


def _waited(everybody: list[int]) -> tuple[dict[str, float], bool]:
    """Return for how long each thread waited for a processor, and whether one wants to run now, or waits for a disk."""
    waited: dict[str, float] = {}
    wants = False
    for pid in everybody:
        try:
            tasks = [f"/proc/{pid}/task/{name}" for name in os.listdir(f"/proc/{pid}/task")]
        except OSError:
            continue
        for task in tasks:
            try:
                with open(f"{task}/stat", "rb") as file:
                    state = file.read().rpartition(b")")[2].split()[0]
                wants = wants or state == b"R" or (state == b"D" and not _waits_for_child(task))
                with open(f"{task}/schedstat", "rb") as file:  # some kernels do not have it
                    waited[task] = int(file.read().split()[1]) / 1e9
            except (OSError, ValueError, IndexError):
                continue
    return waited, wants


def _waits_for_child(task: str) -> bool:
    """Return whether a thread lent its memory to a child and waits for it, which looks like waiting for a disk."""
    try:
        with open(f"{task}/syscall", "rb") as file:
            return file.read().split()[0] in _VFORK.get(os.uname().machine, ())
    except (OSError, IndexError):
        return False
