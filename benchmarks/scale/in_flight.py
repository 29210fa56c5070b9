"""python -m benchmarks.scale.in_flight: very many rollouts in flight, each of which waits for its model.

Each rollout is one model call of 30 s and one verification. Says how many were in flight at the same moment, and what
all processes needed. With `--sigma 0.5` the calls are lognormal with this median, as those of engines are, and the time
of the whole is compared with that of the longest call.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import random
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import msgspec
import uvloop

import gymq
from benchmarks import floor
from benchmarks.ours import instances
from benchmarks.scale.watched import watched
from benchmarks.workloads import Workload
from gymq.bus import Bus, streams
from gymq.bus.queue.outcome_store import OutcomeStore
from gymq.data.materialise import MaterialiseOptions
from gymq.ext.shared.cluster_state import read_queues
from gymq.protocol.messages import Stage
from gymq.runs.collection.collection import Collection
from gymq.runs.collection.options import CollectOptions
from gymq.runs.collection.plan import RunPlan


def draw(rollouts: int, latency_s: float, sigma: float) -> list[float]:
    """Return how long the model call of each rollout takes, in seconds."""
    source = random.Random(1)
    return [latency_s * math.exp(source.gauss(0.0, sigma)) for _ in range(rollouts)]


async def run_floor(workload: Workload, latencies_s: list[float]) -> None:
    """Print how long the bare messages take."""
    with tempfile.TemporaryDirectory(prefix="gymq-bench-") as folder:
        measured = await floor.run(workload, Path(folder), latencies_s)
    print(f"bare messages: {measured.wall_s:.1f} s, {measured.wall_s / max(latencies_s):.2f} to ideal, ", end="")
    print(f"CPU {measured.cpu_s:.0f} s", flush=True)


async def run(workload: Workload, latencies_s: list[float], num_workers: int) -> None:
    rollouts, in_flight = workload.rollouts, workload.window
    model, environment, agent = instances(workload)
    slots = max(in_flight, gymq.Agent.max_concurrency)
    limits = {"max_concurrency": slots, "num_workers": num_workers}
    agent = msgspec.structs.replace(agent, options={**agent.options, **limits})
    async with watched([model, environment, agent]) as cluster:
        rows = cluster.folder / "rows.jsonl"
        made = [replace(workload, latency_s=one).row(number) for number, one in enumerate(latencies_s)]
        rows.write_bytes(b"\n".join(made) + b"\n")
        options = CollectOptions(
            input=rows,
            output=cluster.folder / "rollouts.jsonl",
            materialise=MaterialiseOptions(agent_name="bench_agent", num_repeats=1),
            window=in_flight,
        )
        collection = Collection(cluster.bus, RunPlan(options))
        before, started, began_at = cluster.cpu_s(), time.perf_counter(), time.time()
        counts: list[int] = [0]
        counting = asyncio.create_task(_count(cluster.bus, counts))
        progress = await collection.run()
        wall = time.perf_counter() - started
        spent = {name: seconds - before[name] for name, seconds in cluster.cpu_s().items()}
        counting.cancel()
        print(f"{progress.done:,} of {progress.total:,} done, {progress.failed} failed {progress.failures or ''}")
        print(f"{max(counts):,} in flight at once; {wall:.1f} s, of which the longest call {max(latencies_s):.1f} s")
        if in_flight >= rollouts:
            print(f"makespan to ideal {wall / max(latencies_s):.2f}")
        if len(set(latencies_s)) > 1:
            await _print_seconds(cluster.bus, progress.run, began_at)
        print(f"CPU {sum(spent.values()):.0f} s: " + ", ".join(f"{name} {value:.0f}" for name, value in spent.items()))
        cluster.print_peaks()


async def _count(bus: Bus, counts: list[int]) -> None:
    """Note how many tasks are delivered and not settled, again and again."""
    while True:
        queues = await read_queues(bus.js, streams.TASKS)
        counts.append(sum(queue.in_flight for queue in queues if queue.agent is not None))
        await asyncio.sleep(1.0)


async def _print_seconds(bus: Bus, run: str, began_at: float) -> None:
    """Print for each second how many rollouts had started, and had ended, and how many waited for their model."""
    started, asked, answered, ended = [], [], [], []
    async for _, outcome in OutcomeStore(bus).read(run):
        start = outcome.started_at - began_at
        call = next(timing for timing in outcome.timings if timing.stage is Stage.MODEL)
        started.append(start)
        asked.append(start + call.started_s)
        answered.append(start + call.started_s + call.duration_s)
        ended.append(start + outcome.duration_s)
    print("second  started  at the model  ended")
    for second in range(1, math.ceil(max(ended)) + 1):
        had_started, had_ended = (sum(at <= second for at in times) for times in (started, ended))
        at_model = sum(at <= second for at in asked) - sum(at <= second for at in answered)
        print(f"{second:6}  {had_started:7,}  {at_model:12,}  {had_ended:5,}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rollouts", type=int, default=65_536)
    parser.add_argument("--in-flight", type=int, default=65_536)
    parser.add_argument("--latency", type=float, default=30.0, help="seconds of a model call (default 30)")
    parser.add_argument("--sigma", type=float, default=0.0, help="of the logarithm of the seconds (default 0)")
    parser.add_argument("--workers", type=int, default=1, help="processes of the agent (default 1)")
    parser.add_argument("--floor", action="store_true", help="the bare messages first")
    given = parser.parse_args()
    workload = Workload("sleepy", "", given.rollouts, given.in_flight, latency_s=given.latency)
    latencies_s = draw(given.rollouts, given.latency, given.sigma)
    if given.floor:
        uvloop.run(run_floor(workload, latencies_s))
    uvloop.run(run(workload, latencies_s, given.workers))


if __name__ == "__main__":
    main()
