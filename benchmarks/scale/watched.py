"""A cluster whose memory and CPU time are watched, process by process, this one included."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil

from benchmarks.measure import family
from gymq.bus import Bus
from gymq.cluster.launch import Cluster
from gymq.protocol.instances import Instance

LOOK_EVERY_S = 1.0
MIB = 2**20


class Watched:
    """A running cluster, a connection to it, and what its processes have needed so far.

    Attributes:
        peaks: the most resident bytes of each process.
        peak_all: the most of all at the same moment.
    """

    def __init__(self, cluster: Cluster, bus: Bus, folder: Path) -> None:
        self.cluster = cluster
        self.bus = bus
        self.folder = folder
        self.peaks: dict[str, int] = {}
        self.peak_all = 0
        self.processes = self._find()

    def _find(self) -> dict[str, psutil.Process]:
        names = {child.process.pid: child.name for child in self.cluster.children if child.process is not None}
        return {names.get(one.pid, one.name()): one for one in family(os.getpid())[1:]} | {"client": psutil.Process()}

    def look(self) -> dict[str, int]:
        """Resident bytes of each process now."""
        found = {}
        for name, process in self.processes.items():
            with contextlib.suppress(psutil.NoSuchProcess):
                found[name] = process.memory_info().rss
        self.peaks = {name: max(size, self.peaks.get(name, 0)) for name, size in found.items()}
        self.peak_all = max(self.peak_all, sum(found.values()))
        return found

    def cpu_s(self) -> dict[str, float]:
        """User and system seconds of each process so far."""
        times = {name: process.cpu_times() for name, process in self.processes.items()}
        return {name: time.user + time.system for name, time in times.items()}

    async def keep_looking(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(LOOK_EVERY_S)

    def print_peaks(self) -> None:
        shown = ", ".join(f"{name} {size / MIB:,.0f}" for name, size in self.peaks.items())
        print(f"peak memory in MiB: {shown}; all at the same moment {self.peak_all / MIB:,.0f}", flush=True)


@asynccontextmanager
async def watched(instances: list[Instance], folder: Path | None = None) -> AsyncIterator[Watched]:
    """Run a cluster in a folder, by default one that goes when this ends."""
    with tempfile.TemporaryDirectory(prefix="gymq-bench-") as temporary:
        place = folder or Path(temporary)
        async with Cluster(instances, folder=place, log_level="warning", drain_s=2.0) as cluster:
            bus = await Bus.connect(cluster.url, role="client", name="benchmark")
            found = Watched(cluster, bus, place)
            looking = asyncio.create_task(found.keep_looking())
            try:
                yield found
            finally:
                looking.cancel()
                await bus.close()
