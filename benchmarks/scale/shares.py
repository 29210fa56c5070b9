"""python -m benchmarks.scale.shares: runs that compete for the slots of one agent.

Three runs with the shares 4, 2 and 1 have tasks all the time; says what each got of a minute. Then a run has 100,000
tasks in the queue: says how long the first rollout of a new run takes behind them, and after how many other starts an
urgent run starts, with all its own slots in use.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import time
from dataclasses import replace

import msgspec
import uvloop

from benchmarks.ours import instances
from benchmarks.scale.watched import Watched, watched
from benchmarks.workloads import WORKLOADS
from gymq.bus.queue.client import QueueClient
from gymq.bus.queue.steering import steer
from gymq.bus.streams import MAX_WAITING_TASKS
from gymq.protocol.messages import Outcome, Task
from gymq.runs.stored_runs import Runs

SHARES = {"four": 4.0, "two": 2.0, "one": 1.0}
SLOTS = 32
LATENCY_S = 0.2
SUBMITTERS = 256
ROW = replace(WORKLOADS["single-step"], latency_s=LATENCY_S).row(0)


async def submit(cluster: Watched, run: str, count: int, row: bytes = ROW, *, urgent: bool = False) -> None:
    numbers = iter(range(count))
    queue = QueueClient(cluster.bus)
    await queue.open_run(run)

    async def some() -> None:
        for number in numbers:
            task = Task(run=run, task_index=number, rollout_index=0, agent="bench_agent", row=row, timeout_s=3600.0)
            await queue.submit(task, urgent=urgent, patience_s=600.0)

    await asyncio.gather(*(some() for _ in range(SUBMITTERS)))


async def outcomes(cluster: Watched, run: str) -> list[Outcome]:
    return [outcome async for _, outcome in QueueClient(cluster.bus).outcomes.read(run)]


async def until_stored(cluster: Watched, run: str, count: int) -> None:
    runs = Runs(cluster.bus)
    while await runs.num_stored(run) < count:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def say_shares(cluster: Watched, seconds: float) -> None:
    for run, share in SHARES.items():
        await steer(cluster.bus, run, share=share, paused=True)
        await submit(cluster, run, int(SLOTS / LATENCY_S * seconds))
    for run in SHARES:
        await steer(cluster.bus, run, paused=False)
    await asyncio.sleep(2.0)  # of a run that starts alone for a moment
    runs = Runs(cluster.bus)
    before = {run: await runs.num_stored(run) for run in SHARES}
    cpu, begun = sum(cluster.cpu_s().values()), time.perf_counter()
    await asyncio.sleep(seconds)
    gained = {run: await runs.num_stored(run) - before[run] for run in SHARES}
    took, total = time.perf_counter() - begun, sum(gained.values())
    print(
        f"{total:,} rollouts in {took:.0f} s, {1000 * (sum(cluster.cpu_s().values()) - cpu) / total:.2f} ms of CPU each"
    )
    for run, share in SHARES.items():
        of = share / sum(SHARES.values())
        print(f"{run}: {gained[run]:,} rollouts, {100 * (gained[run] / total / of - 1):+.1f} % of its share")
    for run in SHARES:
        await QueueClient(cluster.bus).cancel(run)


async def say_waits(cluster: Watched, tasks: int) -> None:
    await submit(cluster, "many", tasks)
    print(f"{tasks:,} tasks of one run were queued")
    for run, urgent in (("new", False), ("urgent", True)):
        count = 3 * SLOTS
        begun = time.time()
        await submit(cluster, run, count, urgent=urgent)
        await until_stored(cluster, run, count)
        own = sorted(outcome.started_at for outcome in await outcomes(cluster, run))
        others = [outcome.started_at for outcome in await outcomes(cluster, "many")]
        first, last = own[0], own[-1]
        print(f"{run}: its first rollout started after {1000 * (first - begun):.0f} ms", end="; ")
        between = sum(first < started < last for started in others)
        print(f"until its {count} had started, {between} others did")
        gaps = [sum(one < started < next_ for started in others) for one, next_ in itertools.pairwise(own)]
        print(f"{run}: at most {max(gaps)} others started between two of its own")


async def run(seconds: float, tasks: int) -> None:
    model, environment, agent = instances(replace(WORKLOADS["single-step"], latency_s=LATENCY_S))
    agent = msgspec.structs.replace(agent, options={**agent.options, "max_concurrency": SLOTS})
    async with watched([model, environment, agent]) as cluster:
        await say_shares(cluster, seconds)
        await say_waits(cluster, tasks)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--tasks", type=int, default=MAX_WAITING_TASKS - 1)
    given = parser.parse_args()
    uvloop.run(run(given.seconds, given.tasks))


if __name__ == "__main__":
    main()
