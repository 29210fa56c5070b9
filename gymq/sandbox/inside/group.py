"""The control group of one program, by way of the files that its owner opened."""

from __future__ import annotations

import os


class ProgramGroup:
    """Limits that the kernel keeps for all processes of a program together, and what it counts of them.

    Args:
        fds: files of version 2 or 1 of control groups. To read: `memory.events` or `memory.oom_control`;
            `memory.events` or `memory.memsw.max_usage_in_bytes`; `cpu.stat` or `cpuacct.usage`. To write:
            `cgroup.procs`, in version 1 that of each controller.
        memory_bytes: its limit.
    """

    def __init__(self, fds: list[int], memory_bytes: int) -> None:
        self._events, self._reached, self._usage, *self._members = fds
        self._is_version_2 = len(self._members) == 1
        # A process is refused that far below the limit, if it asks for the most that it may at once.
        self._least_peak = memory_bytes - 4 * 1024**2

    def enter(self) -> None:
        """Make this process a member, with all that it will start."""
        for fd in self._members:
            os.write(fd, b"0")

    def computed(self) -> float:
        """Return the seconds of computing of all processes, also of those that are gone."""
        if self._is_version_2:
            return _after(b"usage_usec", self._usage) / 1e6
        return int(_words(self._usage)[0]) / 1e9

    def ran_out_of_memory(self) -> bool:
        """Return whether the kernel ended a process because the program reached its limit.

        Raises:
            MemoryError: it did so although the program kept within its limit.
        """
        if _after(b"oom_kill", self._events) == 0:
            return False
        if self._is_version_2:
            is_over = _after(b"oom", self._reached) > 0
        else:
            is_over = int(_words(self._reached)[0]) >= self._least_peak
        if not is_over:
            raise MemoryError("the machine ran out of memory")
        return True


def _after(name: bytes, fd: int) -> int:
    words = _words(fd)
    return int(words[words.index(name) + 1])


def _words(fd: int) -> list[bytes]:
    return os.pread(fd, 4096, 0).split()
