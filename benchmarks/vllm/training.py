"""Does the queue slow a training down? The loop of examples/train_tiny, through gymq and without a queue.

.venv-vllm/bin/python -m benchmarks.vllm.training --steps 3

Both sides run the same class of the example: groups of rollouts on vLLM, rewards of the verifiers, a GRPO update, new
weights for the engine. Without a queue, engine, agents and verifiers are objects of the training's process. Each
measurement has a process and an engine of its own, warmed up by rollouts of the held-out tasks. The learning rate is 0:
both sides sample from the same policy, so replies are equally long. Pairs are measured in alternating order.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from gymq import Model, ModelRequest, WeightsUpdate
from gymq.agent_harness import AgentHarness
from gymq.cluster import event_loop
from gymq.cluster.host import build
from gymq.config import Config
from gymq.execution.loading import registry
from gymq.protocol.tokens import TOKEN_FIELDS
from gymq.trainer import TrainingRun
from gymq.trainer.groups import Group, Sample

sys.path.append(str(Path(__file__).parents[2] / "examples" / "train_tiny"))
from train import RUN, Training, cluster_at, configuration, prepare

TIMEOUT_S = 600.0

Row = dict[str, Any]


class Rate(NamedTuple):
    """What was measured of one side, a second."""

    rollouts: float
    tokens: float  # sampled ones


class Measured(Training):
    """A training whose steps are timed: the evaluation before them warms up, the one after them is left out."""

    begun = ended = 0.0
    num_rollouts = num_tokens = 0

    async def _evaluate(self, step: int) -> dict[str, float]:
        if step:
            self.ended = time.perf_counter()
            return {}
        rewards = await super()._evaluate(step)
        self.begun = time.perf_counter()
        return rewards

    def _roll_out(self, tasks: list[Row], step: int) -> AsyncIterable[Group]:
        return self._counted(super()._roll_out(tasks, step))

    async def _counted(self, batch: AsyncIterable[Group]) -> AsyncIterator[Group]:
        async for group in batch:
            if not group.is_complete:
                raise SystemExit(f"a rollout failed: {group.failures[0].message}")
            self.num_rollouts += len(group.samples)
            self.num_tokens += sum(sum(sample.record().is_sampled()) for sample in group.samples)
            yield group


@asynccontextmanager
async def through_gymq(given: argparse.Namespace) -> AsyncIterator[TrainingRun]:
    """A run on a cluster of its own."""
    async with cluster_at(given, Console(quiet=True)) as url:
        run = await TrainingRun.connect(url, RUN)
        yield run
        await run.close()


@asynccontextmanager
async def in_process(_given: argparse.Namespace) -> AsyncIterator[DirectRun]:
    """The same engine, agents and verifiers as objects of this process."""
    config = configuration()
    model = build(config.instance("policy_model"))
    assert isinstance(model, Model)
    await model.start()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(model.stop)
        run = DirectRun(model)
        for instance in config.instances:
            if instance.kind == "agents":
                run.agents[instance.name] = await stack.enter_async_context(_agent(config, instance.name, run.ask))
        yield run


def _agent(config: Config, name: str, ask: Callable[[Row], Awaitable[Row]]) -> AgentHarness[Any]:
    agent = config.instance(name)
    environment = config.instance(agent.options["resources_server"]["name"])
    classes = [registry.find_class(one.kind, one.implementation) for one in (agent, environment)]
    return AgentHarness(*classes, ask, agent.options, resources_options=environment.options)


class DirectRun:
    """What the training asks of its run, without a queue."""

    def __init__(self, model: Model) -> None:
        self.agents: dict[str, AgentHarness[Any]] = {}
        self._model = model

    def after_update(self, hook: Callable[[str], Awaitable[None]]) -> None:
        self._after_update = hook

    async def update_weights(self, policy_version: str, *, weights: bytes) -> None:
        await self._model.load_weights(WeightsUpdate(policy_version, weights=weights))
        await self._after_update(policy_version)

    def run_rollouts(self, rows: Sequence[Row], *, num_samples: int, **_: Any) -> AsyncIterator[Group]:
        """Begin all rollouts now; yield groups as they are completed."""
        return _completed([asyncio.create_task(self._group(row, num_samples)) for row in rows])

    async def ask(self, params: Row) -> Row:
        return await self._model.respond(ModelRequest(params, "benchmark", "benchmark", TIMEOUT_S))

    async def _group(self, row: Row, num_samples: int) -> Group:
        samples = await asyncio.gather(*(self._sample(row, number) for number in range(num_samples)))
        return Group(row["_ng_task_index"], row, list(samples), [], num_samples)

    async def _sample(self, row: Row, number: int) -> Sample:
        agent = self.agents[row["agent_ref"]["name"]]
        verdict, response = await agent.run(row, rollout_id=f"{RUN}/{row['_ng_task_index']}/{number}")
        output = [
            item | {name: list(item[name]) for name in TOKEN_FIELDS if name in item} for item in response["output"]
        ]
        return Sample(
            number, {**verdict.fields, "response": {**response, "output": output}, "reward": verdict.reward}, []
        )


async def _completed(groups: Sequence[asyncio.Task[Group]]) -> AsyncIterator[Group]:
    for group in asyncio.as_completed(groups):
        yield await group


SIDES: dict[str, Callable[[argparse.Namespace], Any]] = {"through gymq": through_gymq, "in process": in_process}


def measure(side: str, given: argparse.Namespace) -> Rate:
    """The rate of one side, measured in this process."""

    async def train() -> Rate:
        async with SIDES[side](given) as run:
            training = Measured(run, given, 0)
            await training.train(Console(quiet=True))
        seconds = training.ended - training.begun
        return Rate(training.num_rollouts / seconds, training.num_tokens / seconds)

    with tempfile.TemporaryDirectory(prefix="gymq-bench-") as folder:
        given.output = Path(folder)
        prepare(given)
        return event_loop.run(train())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--prompts", type=int, default=32, help="tasks of a step")
    parser.add_argument("--samples", type=int, default=8, help="rollouts of a task")
    parser.add_argument("--ahead", type=int, default=1, help="steps whose rollouts are made ahead, as in train_tiny")
    given = parser.parse_args()
    fixed = {
        "seed": 0,
        "tasks": 0,
        "learning_rate": 0.0,
        "varied": False,
        "processes": 1,
        "rollouts": 10**9,
        "nats": None,
    }
    given = argparse.Namespace(**vars(given), **fixed, evaluation_samples=4, evaluation_draws=0)
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "CRITICAL")  # calls of tools that cannot be read are errors there
    found: dict[str, list[Rate]] = {side: [] for side in SIDES}
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), max_tasks_per_child=1) as pool:
        for pair in range(given.pairs):
            for side in list(SIDES)[:: -1 if pair % 2 else 1]:
                rate = pool.submit(measure, side, given).result()
                found[side].append(rate)
                print(
                    f"pair {pair + 1}, {side}: {rate.rollouts:.1f} rollouts/s, {rate.tokens:,.0f} tokens/s", flush=True
                )
    for side, rates in found.items():
        print(f"{side}: {statistics.median(rate.rollouts for rate in rates):.1f} rollouts/s")
    ratios = [queue.rollouts / direct.rollouts for queue, direct in zip(*found.values(), strict=True)]
    print(f"ratio {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    main()
