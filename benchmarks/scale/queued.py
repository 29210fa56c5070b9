"""python -m benchmarks.scale.queued: a million rows, in a collection and in the queue.

First a collection of so many rows whose model, which answers 1,000 calls at a time as models do by default, takes for
ever: its rows are materialised and its window is submitted. Then the rest of the million is submitted in runs of
100,000 tasks: one run may have no more in the queue. Says what each process needs on the way, and how long `gymq
status` and another start of the collection take then.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import resource
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import uvloop

from benchmarks import ours
from benchmarks.scale.watched import MIB, Watched, watched
from benchmarks.workloads import Workload
from gymq.authoring import Worker
from gymq.bus.queue.client import QueueClient
from gymq.bus.streams import MAX_WAITING_TASKS
from gymq.data.materialise import MaterialiseOptions
from gymq.protocol.instances import Instance
from gymq.protocol.messages import Task
from gymq.runs.collection.collection import Collection
from gymq.runs.collection.options import CollectOptions
from gymq.runs.collection.plan import RunPlan

SUBMITTERS = 256
FOREVER = Workload("forever", "", 0, 0, latency_s=86_400.0)


def instances() -> list[Instance]:
    model, *others = ours.instances(FOREVER)
    return [msgspec.structs.replace(model, options={"max_concurrency": Worker.max_concurrency}), *others]


def say_command(url: str, *arguments: str) -> None:
    """Run a command of gymq and tell how long it takes, its own start included."""
    line = [Path(sys.executable).with_name("gymq"), *arguments, "--nats", url]
    before, begun = _cpu_of_commands_s(), time.perf_counter()
    subprocess.run(line, stdout=subprocess.DEVNULL, check=True)
    took, cpu = time.perf_counter() - begun, _cpu_of_commands_s() - before
    print(f"gymq {' '.join(arguments)}: {took:.1f} s, its CPU {cpu:.1f} s", flush=True)


def _cpu_of_commands_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)  # of those that have ended
    return used.ru_utime + used.ru_stime


def tell(cluster: Watched, what: str, since: float) -> None:
    memory = ", ".join(f"{name} {size / MIB:,.0f}" for name, size in cluster.look().items())
    print(f"{what}: {time.perf_counter() - since:.1f} s; MiB: {memory}", flush=True)


async def collect(cluster: Watched, rows: int, window: int, new: int) -> None:
    """Start a collection, and stop it when it has submitted so many new tasks."""
    data = cluster.folder / "rows.jsonl"
    await asyncio.to_thread(_write_rows, data, rows)
    materialise = MaterialiseOptions(agent_name="bench_agent", num_repeats=1)
    output = Path(cluster.folder) / "rollouts.jsonl"
    collection = Collection(
        cluster.bus, RunPlan(CollectOptions(input=data, output=output, materialise=materialise, window=window))
    )
    begun = time.perf_counter()
    running = asyncio.create_task(collection.run())
    while collection.progress.submitted < new and not running.done():  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    tell(cluster, f"a collection of {rows:,} rows has {window:,} in flight, {new:,} of them new", begun)
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


def _write_rows(data: Path, rows: int) -> None:
    if not data.exists():
        with data.open("wb") as file:
            file.writelines(FOREVER.row(number) + b"\n" for number in range(rows))


async def submit_run(cluster: Watched, run: str, count: int) -> None:
    numbers = iter(range(count))
    row = FOREVER.row(0)
    queue = QueueClient(cluster.bus)

    async def some() -> None:
        for number in numbers:
            task = Task(run=run, task_index=number, rollout_index=0, agent="bench_agent", row=row, timeout_s=86_400.0)
            await queue.submit(task, patience_s=600.0)

    await asyncio.gather(*(some() for _ in range(SUBMITTERS)))


async def run(rows: int) -> None:
    async with watched(instances()) as cluster:
        tell(cluster, "everything has started", time.perf_counter())
        window = min(rows, MAX_WAITING_TASKS) - 1
        await collect(cluster, rows, window, window)
        begun = time.perf_counter()
        left = rows - MAX_WAITING_TASKS
        while left > 0:
            await submit_run(cluster, f"more-{left}", min(left, MAX_WAITING_TASKS))
            left -= MAX_WAITING_TASKS
            tell(cluster, f"{rows - max(0, left):,} tasks are queued", begun)
        await asyncio.to_thread(say_command, cluster.cluster.url, "status")
        await collect(cluster, rows, window + 1, 1)
        cluster.print_peaks()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    uvloop.run(run(parser.parse_args().rows))


if __name__ == "__main__":
    main()
