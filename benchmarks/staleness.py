"""python -m benchmarks.staleness: what a limit on staleness costs a training whose rollouts differ in length.

Half of the tasks take 1 model call and half 12, of `simulated_model`; each batch is followed by an update of so many
seconds and a push. `train_batches` keeps the limit by what may begin. Beside each training runs one without a limit,
with a model and agents of its own. Prints rollouts a second, also next to the other's in the same time, how far behind
rollouts were, how many were thrown away or repeated, and whether the lengths of those that were trained on are those of
the ones that were drawn (Kolmogorov-Smirnov).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvloop
from gymq.workers.models.simulated_model.worker import SimulatedModel
from scipy.stats import ks_2samp  # type: ignore[import-untyped,unused-ignore]

import gymq
from benchmarks.scale.watched import watched
from gymq.protocol.instances import Instance
from gymq.protocol.messages import VerifiedRollout
from gymq.trainer import TrainingRun

CALLS = (1, 12)
GROUPS, SAMPLES = 8, 4
IN_FLIGHT = 64  # rollouts that the engine has room for
SIDES = ("limited", "free")
WARM_UP = 6  # batches that are not measured
NO_LIMIT = 1000
HERE = Path(__file__).parent
ADD = {
    "type": "function",
    "name": "add",
    "parameters": {"type": "object", "properties": {"amount": {"type": "integer"}}},
    "strict": False,
}
EMPTY_WEIGHTS = (2).to_bytes(8, "little") + b"{}"


class Updated(SimulatedModel):
    """Takes weights, which change nothing."""

    async def load_weights(self, update: gymq.WeightsUpdate) -> None:
        pass


@dataclass
class Course:
    """What a training was like after the first batches."""

    calls: list[int] = field(default_factory=list)  # of each group
    lags: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)  # when batches were there
    num_wasted: int = 0  # rollouts that failed or began again

    def rollouts_per_s(self, start: float, end: float) -> float:
        return GROUPS * SAMPLES * sum(start < at <= end for at in self.times) / (end - start)


def instances(latency_s: float) -> list[Instance]:
    options = {"skill": 1.0, "token_ids": True, "output_tokens": 20, "latency_s": latency_s}
    made = [Instance("counter", "resources", f"{HERE / 'stateful.py'}:Stateful")]
    for side in SIDES:
        references: dict[str, Any] = {
            "resources_server": {"type": "resources_servers", "name": "counter"},
            "model_server": {"type": "responses_api_models", "name": f"policy_{side}"},
            "max_concurrency": IN_FLIGHT,
        }
        made.append(Instance(f"policy_{side}", "models", f"{HERE / 'staleness.py'}:Updated", options))
        made.append(Instance(side, "agents", "simple_agent", references))
    return made


def row(number: int, calls: int) -> dict[str, Any]:
    script = [*[[{"call": {"name": "add", "arguments": {"amount": 1}}}]] * (calls - 1), [{"text": "Done."}]]
    params = {
        "input": f"Task {number}: {calls - 1} times.",
        "tools": [ADD],
        "metadata": {"simulated_solution": json.dumps(script)},
    }
    return {"responses_create_params": params, "calls": calls}


async def train(url: str, side: str, run: str, update_s: float, course: Course, last: int, **limits: int) -> None:
    """Train until a batch, or until it is cancelled."""
    drawn = [row(number, calls) for number in range(100) for calls in CALLS]
    random.Random(0).shuffle(drawn)
    training = await TrainingRun.connect(url, run, model=f"policy_{side}")
    batches = training.train_batches(drawn, groups=GROUPS, num_samples=SAMPLES, agent=side, **limits)
    try:
        await training.update_weights(f"{run}-0", weights=EMPTY_WEIGHTS)
        async for batch in batches:
            if batch.step >= WARM_UP:
                course.calls += [group.example["calls"] for group in batch.groups]
                course.lags.append(int(batch.metrics["lag_max"]))
                course.times.append(time.perf_counter())
            if batch.step == last:
                break
            await asyncio.sleep(update_s)
            await training.update_weights(f"{run}-{batch.step + 1}", weights=EMPTY_WEIGHTS)
    finally:
        await batches.aclose()
        async for outcome in training.stored():
            course.num_wasted += outcome.attempt > 0 or not isinstance(outcome, VerifiedRollout)
        await training.cancel()
        await training.close()


async def compare(limits: list[int], num_batches: int, latency_s: float, update_s: float) -> None:
    async with watched(instances(latency_s)) as cluster:
        url = cluster.cluster.url
        for limit in limits:
            courses = {side: Course() for side in SIDES}
            of_sides = {
                "limited": {"ahead": limit, "last": WARM_UP + num_batches},
                "free": {"ahead": 16, "max_staleness": NO_LIMIT, "last": sys.maxsize},
            }
            trainings = [
                asyncio.create_task(train(url, side, f"{side}-{limit}", update_s, courses[side], **of_sides[side]))
                for side in SIDES
            ]
            await asyncio.wait(trainings, return_when=asyncio.FIRST_COMPLETED)
            for training in trainings:
                training.cancel()
            for result in await asyncio.gather(*trainings, return_exceptions=True):
                if isinstance(result, Exception):
                    raise result
            report(limit, **courses)


def report(limit: int, limited: Course, free: Course) -> None:
    start, end = limited.times[0], limited.times[-1]
    rate = limited.rollouts_per_s(start, end)
    long = sum(calls == max(CALLS) for calls in limited.calls) / len(limited.calls)
    drawn = list(CALLS) * (len(limited.calls) // 2)
    print(
        f"at most {limit} behind: {rate:.1f} rollouts/s, {rate / free.rollouts_per_s(start, end):.2f} of no limit, "
        f"which was {max(free.lags)} behind; {limited.num_wasted} wasted, {long:.0%} long, {max(limited.lags)} behind, "
        f"p = {ks_2samp(limited.calls, drawn).pvalue:.2f}; load {os.getloadavg()[0]:.0f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.staleness")
    parser.add_argument("--batches", type=int, default=40, help="that are measured (default 40)")
    parser.add_argument("--latency", type=float, default=0.5, help="seconds of a model call (default 0.5)")
    parser.add_argument("--update", type=float, default=1.1, help="seconds of an update (default 1.1)")
    parser.add_argument("--limits", type=int, nargs="*", default=[1, 2, 4, 8])
    given = parser.parse_args()
    uvloop.run(compare(given.limits, given.batches, given.latency, given.update))


if __name__ == "__main__":
    main()
