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
import time
from dataclasses import replace

import msgspec
import uvloop

import gymq
from benchmarks.ours import instances
from benchmarks.scale.watched import watched
from benchmarks.workloads import Workload
from gymq.bus import Bus, streams
from gymq.data.materialise import MaterialiseOptions
from gymq.runs.cluster_status import read_queues
from gymq.runs.collection.collection import Collection
from gymq.runs.collection.options import CollectOptions


async def run(rollouts: int, in_flight: int, latency_s: float, sigma: float) -> None:
    draw = random.Random(1)
    latencies_s = [latency_s * math.exp(draw.gauss(0.0, sigma)) for _ in range(rollouts)]
    workload = Workload("sleepy", "", rollouts, in_flight, latency_s=latency_s)
    model, environment, agent = instances(workload)
    slots = max(in_flight, gymq.Agent.max_concurrency)
    agent = msgspec.structs.replace(agent, options={**agent.options, "max_concurrency": slots})
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
        collection = Collection(cluster.bus, options)
        before, started = cluster.cpu_s(), time.perf_counter()
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
        print(f"CPU {sum(spent.values()):.0f} s: " + ", ".join(f"{name} {value:.0f}" for name, value in spent.items()))
        cluster.print_peaks()


async def _count(bus: Bus, counts: list[int]) -> None:
    """Note how many tasks are delivered and not settled, again and again."""
    while True:
        queues = await read_queues(bus.js, streams.TASKS)
        counts.append(sum(queue.in_flight for queue in queues if queue.agent is not None))
        await asyncio.sleep(1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rollouts", type=int, default=65_536)
    parser.add_argument("--in-flight", type=int, default=65_536)
    parser.add_argument("--latency", type=float, default=30.0, help="seconds of a model call (default 30)")
    parser.add_argument("--sigma", type=float, default=0.0, help="of the logarithm of the seconds (default 0)")
    given = parser.parse_args()
    uvloop.run(run(given.rollouts, given.in_flight, given.latency, given.sigma))


if __name__ == "__main__":
    main()
