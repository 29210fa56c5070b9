"""Does the queue slow a training down? The loop of examples/train_tiny, through gymq and without a queue.

.venv-vllm/bin/python -m benchmarks.vllm.training --steps 3
.venv-vllm/bin/python -m benchmarks.vllm.training --steps 4 --tokens 512 1536

Both sides run the same class of the example: groups of rollouts on vLLM, rewards of the verifiers, a GRPO update, new
weights for the engine. Without a queue, engine, agents and verifiers are objects of the training's process. Each
measurement has a process and an engine of its own, and begins after the first step: two batches are submitted at once
for it, and nothing is updated while they are made. The learning rate is 0: both sides sample from the same policy, so
replies are equally long. Pairs are measured in alternating order. With `--tokens` no tools are offered, and the one
reply of a rollout has so many tokens, whatever the policy would say. CPU time is that of all processes; on few cores it
decides about the rates.
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
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from benchmarks.measure import cpu_s_by_name
from gymq import Model, ModelRequest, WeightsUpdate
from gymq.cluster import event_loop
from gymq.cluster.launch import Cluster
from gymq.config import Config
from gymq.execution.loading import registry
from gymq.execution.loading.building import build
from gymq.protocol.tokens import TOKEN_FIELDS
from gymq.testing.agent_harness import AgentHarness
from gymq.trainer import TrainingBatch, TrainingRun
from gymq.trainer.batches import Batches
from gymq.trainer.groups import Group, Sample
from gymq.trainer.options import BatchOptions

sys.path.append(str(Path(__file__).parents[2] / "examples" / "train_tiny"))
from train import Training, configuration, prepare

RUN = "training"
TIMEOUT_S = 600.0
SERVING = {"max_model_len": 2048, "kv_cache_memory_bytes": 512 << 20}  # of vLLM: room for all replies of a step
ON_GPU = {"enforce_eager": False}  # CUDA graphs
SHOWN_MS = 0.005  # of a process

Row = dict[str, Any]


class Rate(NamedTuple):
    """What was measured of one side."""

    rollouts: float  # a second
    tokens: float  # sampled ones, a second
    cpu_ms: dict[str, float]  # of a rollout, by process

    @property
    def all_cpu_ms(self) -> float:
        return sum(self.cpu_ms.values())

    @property
    def cpu(self) -> str:
        """CPU of a rollout, the dearest processes first."""
        dearest = sorted(self.cpu_ms.items(), key=lambda one: -one[1])
        named = ", ".join(f"{name} {ms:.2f}" for name, ms in dearest if ms >= SHOWN_MS)
        return f"{self.all_cpu_ms:.2f} ms of CPU a rollout: {named}"


class Measured(Training):
    """A training whose steps after the first are timed, up to the evaluation at the end."""

    begun = ended = 0.0
    num_rollouts = num_tokens = 0

    def __init__(self, run: Any, given: argparse.Namespace, names: Mapping[int, str]) -> None:
        super().__init__(run, given, 0)
        self._names = names  # of processes
        self._tokens: int = given.tokens  # of a reply; 0: as many as the policy says
        self._cpu_s: dict[str, float] = {}

    @property
    def rate(self) -> Rate:
        seconds = self.ended - self.begun
        cpu_ms = {name: 1000 * seconds / self.num_rollouts for name, seconds in self._cpu_s.items()}
        return Rate(self.num_rollouts / seconds, self.num_tokens / seconds, cpu_ms)

    async def _push(self, step: int) -> None:
        await super()._push(step)
        if step == 1:
            self.num_rollouts = self.num_tokens = 0
            self._cpu_s = cpu_s_by_name(self._names)
            self.begun = time.perf_counter()

    async def _evaluate(self, step: int) -> dict[str, float]:
        if not step:
            return await super()._evaluate(step)
        self.ended = time.perf_counter()
        self._cpu_s = {
            name: seconds - self._cpu_s.get(name, 0.0) for name, seconds in cpu_s_by_name(self._names).items()
        }
        return {}

    def _tasks(self) -> Iterator[Row]:
        return (_of_length(task, self._tokens) for task in super()._tasks())

    async def _batches(self, state: Row | None) -> AsyncIterator[TrainingBatch]:
        async for batch in super()._batches(state):
            self.num_rollouts += int(batch.metrics["rollouts"])
            self.num_tokens += int(batch.metrics["tokens"])
            yield batch


def _of_length(task: Row, tokens: int) -> Row:
    """Return a task with one reply of so many tokens; 0: the task as it is."""
    if not tokens:
        return task
    # Text beyond a call could not be continued by the prompt of another reply, so none are offered.
    params = {"max_output_tokens": tokens, "metadata": {"extra_body": '{"ignore_eos": true}'}, "tools": []}
    return {**task, "responses_create_params": {**task["responses_create_params"], **params}}


@asynccontextmanager
async def through_gymq(given: argparse.Namespace) -> AsyncIterator[tuple[TrainingRun, dict[int, str]]]:
    """A run on a cluster of its own, and the names of the cluster's processes."""
    async with Cluster(_configuration(given).instances, folder=given.output, log_level="warning") as cluster:
        names = {child.process.pid: child.name for child in cluster.children if child.process is not None}
        run = await TrainingRun.connect(cluster.url, RUN)
        yield run, names
        await run.close()


@asynccontextmanager
async def in_process(given: argparse.Namespace) -> AsyncIterator[tuple[DirectRun, dict[int, str]]]:
    """The same engine, agents and verifiers as objects of this process."""
    config = _configuration(given)
    model = build(config.instance("policy_model"))
    assert isinstance(model, Model)
    await model.start()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(model.stop)
        run = DirectRun(model)
        for instance in config.instances:
            if instance.kind == "agents":
                run.agents[instance.name] = await stack.enter_async_context(_agent(config, instance.name, run.ask))
        yield run, {}


def _configuration(given: argparse.Namespace) -> Config:
    return configuration(**SERVING, **({} if given.device == "cpu" else ON_GPU))


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

    async def update_weights(self, policy_version: str, *, weights: bytes) -> None:
        await self._model.load_weights(WeightsUpdate(policy_version, weights=weights))

    def train_batches(self, rows: Iterable[Row], **options: Any) -> AsyncIterator[TrainingBatch]:
        async def updates_since() -> Callable[[str], int]:
            return lambda version: 0

        async def not_begun() -> set[int]:
            return set()

        made = BatchOptions.of(**options, on_failed_group="raise")
        return Batches(rows, made, self.run_rollouts, updates_since, not_begun, None).formed()

    def run_rollouts(self, rows: Sequence[Row], *, num_samples: int, **_: Any) -> Any:
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
        async with SIDES[side](given) as (run, names):
            training = Measured(run, given, {os.getpid(): "trainer", **names})
            await training.train(Console(quiet=True))
        return training.rate

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
    parser.add_argument("--device", default="cpu", help="of the policy that is trained, for example cuda")
    parser.add_argument(
        "--tokens", type=int, nargs="+", default=[0], help="of each reply, measured in turn; 0: as the policy ends them"
    )
    given = parser.parse_args()
    if given.steps < 2:
        parser.error("--steps: at least 2, of which the first is not measured")
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
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), max_tasks_per_child=1) as pool:
        for tokens in given.tokens:
            given_tokens = argparse.Namespace(**{**vars(given), "tokens": tokens})
            _compare(pool, given_tokens)


def _compare(pool: Executor, given: argparse.Namespace) -> None:
    """Measure both sides in pairs and print what was found."""
    length = f"{given.tokens} tokens a reply" if given.tokens else "replies as the policy ends them"
    found: dict[str, list[Rate]] = {side: [] for side in SIDES}
    for pair in range(given.pairs):
        for side in list(SIDES)[:: -1 if pair % 2 else 1]:
            rate = pool.submit(measure, side, given).result()
            found[side].append(rate)
            print(
                f"pair {pair + 1}, {side}: {rate.rollouts:.1f} rollouts/s, {rate.tokens:,.0f} tokens/s; {rate.cpu}",
                flush=True,
            )
    for side, rates in found.items():
        print(f"{length}, {side}: {statistics.median(rate.rollouts for rate in rates):.1f} rollouts/s")
    ratios = [queue.rollouts / direct.rollouts for queue, direct in zip(*found.values(), strict=True)]
    cpu = [queue.all_cpu_ms - direct.all_cpu_ms for queue, direct in zip(*found.values(), strict=True)]
    print(
        f"{length}: ratio {statistics.median(ratios):.2f}, {statistics.median(cpu):.2f} ms more CPU a rollout",
        flush=True,
    )


if __name__ == "__main__":
    main()
