"""python -m benchmarks.scale.in_flight: very many rollouts in flight, each of which waits for its model.

Each rollout is one model call of 30 s and one verification. Says how many were in flight at the same moment, and what
all processes needed.
"""

from __future__ import annotations

import argparse
import asyncio
import time

import uvloop

from benchmarks.ours import instances
from benchmarks.scale.watched import watched
from benchmarks.workloads import Workload
from gymq.bus import Bus, streams
from gymq.collection.collection import Collection, CollectOptions
from gymq.data.materialise import MaterialiseOptions
from gymq.runs.cluster_status import read_queues


async def run(rollouts: int, in_flight: int, latency_s: float) -> None:
    workload = Workload("sleepy", "", rollouts, in_flight, latency_s=latency_s)
    model, environment, agent = instances(workload)
    agent.options = agent.options | {"max_concurrency": in_flight}
    async with watched([model, environment, agent]) as cluster:
        rows = cluster.folder / "rows.jsonl"
        rows.write_bytes(b"".join(workload.row(number) + b"\n" for number in range(rollouts)))
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
        print(f"{max(counts):,} in flight at once; {wall:.0f} s, of which the model's {latency_s:g} s")
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
    given = parser.parse_args()
    uvloop.run(run(given.rollouts, given.in_flight, given.latency))


if __name__ == "__main__":
    main()
