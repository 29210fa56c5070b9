"""python -m benchmarks.priority: an urgent run beside one of 10,000 rollouts in flight, and two runs by their shares.

The model answers so many calls at a time as an engine does, in a time that grows with the tokens of the reply. Says how
long 16 urgent rollouts of five turns take alone and beside the others; then what two runs with the shares 3 and 1,
whose replies differ in length, get of the engine's tokens in a minute.
"""

from __future__ import annotations

import argparse
import asyncio
import time

import msgspec
import uvloop

from benchmarks.ours import instances
from benchmarks.scale.shares import submit, until_stored
from benchmarks.scale.watched import Watched, watched
from benchmarks.workloads import WORKLOADS, Workload
from gymq.bus.discovery import find_workers
from gymq.bus.queue.client import QueueClient
from gymq.bus.queue.steering import steer
from gymq.bus.rpc.process_reports import ClusterReport
from gymq.runs.stored_runs import Runs

URGENT = 16  # rollouts
SLOTS = 128  # calls that the model answers at a time
LATENCY_S = 1.0  # of each
SHARES = {"three": 3.0, "one": 1.0}
TOKENS = {"three": 500, "one": 2000}  # of a reply
TOKENS_PER_S = 250.0  # of a reply in the making
SHARED_SLOTS = 64

MANY_TURNS = Workload("five-turns", "", 0, 0, turns=5, latency_s=LATENCY_S)


async def until_waiting(cluster: Watched, count: int) -> None:
    """Wait until nearly so many calls wait for the model."""
    while ClusterReport("many", await find_workers(cluster.bus)).waits.total() < 0.95 * count:
        pass


async def urgent_s(cluster: Watched, run: str) -> float:
    """Return how long the rollouts of an urgent run take."""
    begun = time.perf_counter()
    await submit(cluster, run, URGENT, MANY_TURNS.row(0), urgent=True)
    await until_stored(cluster, run, URGENT)
    return time.perf_counter() - begun


async def say_urgent(rollouts: int) -> None:
    model, environment, agent = instances(MANY_TURNS)
    model = msgspec.structs.replace(model, options={**model.options, "max_concurrency": SLOTS})
    async with watched([model, environment, agent]) as cluster:
        await urgent_s(cluster, "warm")
        alone = await urgent_s(cluster, "alone")
        await submit(cluster, "many", rollouts, MANY_TURNS.row(0))
        await until_waiting(cluster, rollouts - SLOTS)
        before = cluster.cpu_s()
        beside = await urgent_s(cluster, "beside")
        spent = {name: seconds - before[name] for name, seconds in cluster.cpu_s().items()}
        ended = await Runs(cluster.bus).num_stored("many")
        await QueueClient(cluster.bus).cancel("many")
    print(f"{URGENT} urgent rollouts: alone {alone:.1f} s, beside {rollouts:,} in flight {beside:.1f} s", end=", ")
    print(f"ratio {beside / alone:.2f}; of the others {ended:,} had ended")
    print("CPU in s: " + ", ".join(f"{name} {value:.1f}" for name, value in spent.items()), flush=True)


async def say_shares(seconds: float) -> None:
    model, environment, agent = instances(WORKLOADS["single-step"])
    model = msgspec.structs.replace(model, options={**model.options, "max_concurrency": SHARED_SLOTS})
    async with watched([model, environment, agent]) as cluster:
        for run, share in SHARES.items():
            tokens = TOKENS[run]
            row = Workload("single-step", "", 0, 0, tokens=tokens, latency_s=tokens / TOKENS_PER_S).row(0)
            part = share / sum(SHARES.values())
            needed = 1.5 * seconds * part * SHARED_SLOTS * TOKENS_PER_S / tokens
            await steer(cluster.bus, run, share=share, paused=True)
            await submit(cluster, run, int(needed), row)
        for run in SHARES:
            await steer(cluster.bus, run, paused=False)
        await asyncio.sleep(15.0)  # of a run that starts alone for a moment
        runs = Runs(cluster.bus)
        before = {run: await runs.num_stored(run) for run in SHARES}
        await asyncio.sleep(seconds)
        gained = {run: TOKENS[run] * (await runs.num_stored(run) - before[run]) for run in SHARES}
        for run in SHARES:
            await QueueClient(cluster.bus).cancel(run)
    print(f"tokens in {seconds:.0f} s: {gained['three']:,} and {gained['one']:,}, ", end="")
    print(f"ratio {gained['three'] / gained['one']:.2f} by shares of 3 and 1", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rollouts", type=int, default=10_000, help="in flight beside the urgent run")
    parser.add_argument("--seconds", type=float, default=60.0, help="for which the shares are counted")
    parser.add_argument("--only", choices=["urgent", "shares"])
    given = parser.parse_args()
    if given.only != "shares":
        uvloop.run(say_urgent(given.rollouts))
    if given.only != "urgent":
        uvloop.run(say_shares(given.seconds))


if __name__ == "__main__":
    main()
