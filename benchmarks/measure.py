"""CPU time and memory of a set of processes."""

from __future__ import annotations

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


def resident_bytes(processes: list[psutil.Process]) -> int:
    return sum(process.memory_info().rss for process in processes)
