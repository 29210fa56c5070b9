"""python -m benchmarks.staleness: what a limit on staleness costs a training whose rollouts differ in length.

Half of the tasks take 1 model call, half 12, of `simulated_model`; each batch is followed by an update of so many
seconds and a push. `train_batches` keeps the limit by what may begin. Each limit is measured between two trainings
without one. Prints rollouts a second, also next to the mean of these two, how far behind rollouts were, how many were
thrown away or repeated, and whether the lengths of those that were trained on are those of the ones that were drawn
(Kolmogorov-Smirnov).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
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
    """What a training was like."""

    rollouts_per_s: float = 0.0
    trained: list[int] = field(default_factory=list)  # calls of each rollout that was measured
    lags: list[int] = field(default_factory=list)
    num_wasted: int = 0  # rollouts that failed or began again


def instances(latency_s: float) -> list[Instance]:
    references: dict[str, Any] = {
        "resources_server": {"type": "resources_servers", "name": "counter"},
        "model_server": {"type": "responses_api_models", "name": "policy_model"},
        "max_concurrency": IN_FLIGHT,
    }
    options = {"skill": 1.0, "token_ids": True, "output_tokens": 20, "latency_s": latency_s}
    return [
        Instance("policy_model", "models", f"{HERE / 'staleness.py'}:Updated", options),
        Instance("counter", "resources", f"{HERE / 'stateful.py'}:Stateful"),
        Instance("agent", "agents", "simple_agent", references),
    ]


def row(number: int, calls: int) -> dict[str, Any]:
    script = [*[[{"call": {"name": "add", "arguments": {"amount": 1}}}]] * (calls - 1), [{"text": "Done."}]]
    params = {
        "input": f"Task {number}: {calls - 1} times.",
        "tools": [ADD],
        "metadata": {"simulated_solution": json.dumps(script)},
    }
    return {"responses_create_params": params, "calls": calls, "agent_ref": {"name": "agent"}}


async def train(url: str, run: str, limit: int | None, num_batches: int, update_s: float) -> Course:
    """Train with a limit; None: with none, and more under way than the engine has room for."""
    drawn = [row(number, calls) for number in range(100) for calls in CALLS]
    random.Random(0).shuffle(drawn)
    course = Course()
    training = await TrainingRun.connect(url, run)
    ahead, most = (16, NO_LIMIT) if limit is None else (limit, limit)
    await training.update_weights(f"{run}-0", weights=EMPTY_WEIGHTS)
    batches = training.train_batches(drawn, groups=GROUPS, num_samples=SAMPLES, ahead=ahead, max_staleness=most)
    started = 0.0
    async for batch in batches:
        if batch.step >= WARM_UP:
            course.trained += [group.example["calls"] for group in batch.groups for _ in group.samples]
            course.lags.append(int(batch.metrics["lag_max"]))
        if batch.step == WARM_UP + num_batches - 1:
            break
        await asyncio.sleep(update_s)
        await training.update_weights(f"{run}-{batch.step + 1}", weights=EMPTY_WEIGHTS)
        if batch.step == WARM_UP - 1:
            started = time.perf_counter()
    course.rollouts_per_s = len(course.trained) / (time.perf_counter() - started)
    await batches.aclose()
    async for outcome in training.stored():
        course.num_wasted += outcome.attempt > 0 or not isinstance(outcome, VerifiedRollout)
    await training.cancel()
    await training.close()
    return course


async def compare(limits: list[int], num_batches: int, latency_s: float, update_s: float) -> None:
    async with watched(instances(latency_s)) as cluster:
        url = cluster.cluster.url
        before = await train(url, "free-0", None, num_batches, update_s)
        report("no limit", before, [before])
        for limit in limits:
            course = await train(url, f"limit-{limit}", limit, num_batches, update_s)
            after = await train(url, f"free-{limit}", None, num_batches, update_s)
            report(f"at most {limit} behind", course, [before, after])
            before = after


def report(name: str, course: Course, free: list[Course]) -> None:
    share = course.rollouts_per_s / statistics.fmean(one.rollouts_per_s for one in free)
    long = sum(calls == max(CALLS) for calls in course.trained) / len(course.trained)
    groups = course.trained[::SAMPLES]
    drawn = list(CALLS) * (len(groups) // 2)
    print(
        f"{name}: {course.rollouts_per_s:.1f} rollouts/s, {share:.2f} of no "
        f"limit, {max(course.lags)} behind at most, {course.num_wasted} wasted, {long:.0%} long, "
        f"p = {ks_2samp(groups, drawn).pvalue:.2f}",
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
