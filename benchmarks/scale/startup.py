"""python -m benchmarks.scale.startup: how long everything takes to serve, and how much memory it needs then.

All resources workers of this repository in one process, the agents of their configurations in a second,
`simulated_model` in a third, and the services: what `gymq up` starts with all configurations at once, but for workers
with `isolated`, which install packages first. Ends when every process serves.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
import uvloop

from benchmarks.measure import cpu_s, family
from gymq.cluster.launch import Cluster
from gymq.config import Config, load
from gymq.protocol.instances import Instance

WORKERS = Path(__file__).parents[2] / "workers"
MIB = 2**20


@dataclass(frozen=True)
class Start:
    """One start.

    Attributes:
        wall_s: from the first process to the last that serves.
        cpu_s: of all processes together.
        memory: private and shared bytes of each process; what is shared counts for each of its owners in part.
    """

    wall_s: float
    cpu_s: float
    memory: dict[str, int]


def everything() -> Config:
    """The configurations of all resources workers, with a model for their agents and judges."""
    model = WORKERS / "models" / "simulated_model" / "config.yaml"
    return load([model, *sorted(WORKERS.glob("resources/*/config.yaml"))], env_yaml=None)


def of_one_environment(config: Config) -> list[Instance]:
    """Return the workers that need no Python environment of their own, without the agents of those that do."""
    isolated = {instance.name for instance in config.instances if instance.options.get("isolated")}

    def stays(instance: Instance) -> bool:
        resources = instance.options.get("resources_server") or {}
        return instance.name not in isolated and resources.get("name") not in isolated

    return [instance for instance in config.instances if stays(instance)]


async def start(instances: list[Instance], folder: Path) -> Start:
    before = cpu_s(family(os.getpid()))
    started = time.perf_counter()
    async with Cluster(instances, folder=folder, log_level="warning") as cluster:
        wall = time.perf_counter() - started
        cpu = cpu_s(family(os.getpid())) - before
        names = {child.process.pid: child.name for child in cluster.children if child.process is not None}
        memory = {names.get(process.pid, process.name()): _pss(process) for process in family(os.getpid())[1:]}
    return Start(wall, cpu, memory)


def _pss(process: psutil.Process) -> int:
    return int(process.memory_full_info().pss)


async def _starts(count: int) -> list[Start]:
    instances = of_one_environment(await asyncio.to_thread(everything))
    kinds = [instance.kind for instance in instances]
    print(", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds)), flush=True)
    found = []
    for _ in range(count):
        with tempfile.TemporaryDirectory(prefix="gymq-bench-") as folder:
            found.append(await start(instances, Path(folder)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=4, help="the first one warms the disk's cache (default 4)")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # a warm start finds bytecode
    first, *others = uvloop.run(_starts(parser.parse_args().starts))
    print(f"first start: {first.wall_s:.2f} s, CPU {first.cpu_s:.2f} s")
    for one in others:
        print(f"warm start:  {one.wall_s:.2f} s, CPU {one.cpu_s:.2f} s")
    warm = others or [first]
    middle = sorted(warm, key=lambda one: one.cpu_s)[len(warm) // 2]
    for name, size in middle.memory.items():
        print(f"{name:12} {size / MIB:6.0f} MiB")
    print(f"in all {sum(middle.memory.values()) / MIB:.0f} MiB, {statistics.median(one.wall_s for one in warm):.2f} s")


if __name__ == "__main__":
    main()
