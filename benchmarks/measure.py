"""CPU time and memory of a set of processes."""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import psutil


@dataclass(frozen=True)
class Measured:
    """One run of a workload."""

    rollouts: int
    wall_s: float
    cpu_s: float  # of all processes together
    peak_bytes: int  # resident, all processes together
    latencies_s: list[float]  # of single rollouts, first call to last

    @property
    def cpu_ms_per_rollout(self) -> float:
        return 1000 * self.cpu_s / self.rollouts

    @property
    def per_second(self) -> float:
        return self.rollouts / self.wall_s

    def latency_ms(self, quantile: float) -> float:
        ordered = sorted(self.latencies_s)
        return 1000 * ordered[min(len(ordered) - 1, int(quantile * len(ordered)))] if ordered else 0.0


def family(pid: int) -> list[psutil.Process]:
    """A process and all its descendants."""
    root = psutil.Process(pid)
    return [root, *root.children(recursive=True)]


def cpu_s(processes: list[psutil.Process]) -> float:
    """User and system seconds of the processes so far."""
    total = 0.0
    for process in processes:
        times = process.cpu_times()
        total += times.user + times.system
    return total


def cpu_s_by_name(names: Mapping[int, str]) -> dict[str, float]:
    """User and system seconds so far of this process and its descendants, added up by name.

    Args:
        names: of processes, by their ids; the others have the names of their programs.
    """
    seconds: defaultdict[str, float] = defaultdict(float)
    for process in family(os.getpid()):
        with contextlib.suppress(psutil.NoSuchProcess):  # it ended meanwhile
            seconds[names.get(process.pid) or process.name()] += cpu_s([process])
    return seconds


def resident_bytes(processes: list[psutil.Process]) -> int:
    return sum(process.memory_info().rss for process in processes)
