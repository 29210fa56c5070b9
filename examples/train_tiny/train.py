"""Trains a tiny policy with reinforcement learning, on a CPU, in a few minutes.

python examples/train_tiny/train.py

Rollouts are made by gymq's agents, verifiers and vLLM; this program holds the policy and its gradient. New weights go
to the engine over NATS. While the policy is updated, the rollouts of the next steps are made, so they are as many
updates old as there are steps ahead; with `--ahead 4`, use a learning rate of 4e-4. Several processes share the tasks
of a step. With `--varied`, tasks whose rollouts have been all right or all wrong are left for others. The same command
resumes a training that was stopped or killed, from the last step in its folder.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import statistics
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from curve import LiveCurve, save_png
from grpo import Update, advantages, update
from processes import mean_of_all, meet, start_others, wait_for_all
from rich.console import Console
from rich.table import Table
from safetensors.torch import save
from tasks import KINDS, Row, Tasks
from transformers import AutoModelForCausalLM
from transformers.utils.logging import disable_progress_bar

from gymq.cluster.launch import Cluster
from gymq.config import Config, load
from gymq.data.records import Record
from gymq.trainer import TrainingRun
from gymq.trainer.groups import Group, SampleFailed
from gymq.trainer.sampling import Difficulties, varied_groups

EXAMPLES = Path(__file__).parents[1]
POLICY = EXAMPLES / "tiny_policy" / "checkpoint"
CONFIG = EXAMPLES / "demo_vllm" / "config.yaml"
STRAGGLER_S = 60.0
TASKS_OF_A_STEP = 10_000  # task indices that are kept for each step
CANDIDATES = 4  # tasks that `--varied` chooses from, for each group
FOLDER = "train-tiny-"  # how the names of folders begin, below `runs`
ARGUMENTS, RESULT = "arguments.json", "result.json"  # files in them
FIRST = 4  # rollouts after which `--varied` replaces a group that does not vary


@dataclass
class Result:
    """What a training came to."""

    rewards: list[float] = field(default_factory=list)  # mean of each step
    rollouts: list[int] = field(default_factory=list)  # of each step, those of replaced groups too
    before: dict[str, float] = field(default_factory=dict)  # mean reward of the evaluation, by kind
    after: dict[str, float] = field(default_factory=dict)


class Training:
    """A policy, and the rollouts that it is trained on."""

    def __init__(self, run: TrainingRun, given: argparse.Namespace, rank: int) -> None:
        self._run = run
        self._rank = rank  # which of the processes this is; the first one pushes, evaluates and saves
        self._given = given
        model = AutoModelForCausalLM.from_pretrained(POLICY, dtype=torch.float32)
        self._model = model.to(given.device).eval()
        self._optimizer = torch.optim.AdamW(self._model.parameters(), lr=given.learning_rate, weight_decay=0.0)
        self._result = Result()
        self._checkpoint: Path = given.output / "checkpoint.pt"
        self._loaded: list[str] = []
        self._known = Difficulties()
        run.after_update(self._on_loaded)

    async def train(self, console: Console) -> Result:
        if self._checkpoint.exists():
            self._resume()
            if self._given.varied:
                of_done_steps = range(TASKS_OF_A_STEP, (len(self._result.rewards) + 1) * TASKS_OF_A_STEP)
                self._known = await Difficulties.of_run(self._run, of_done_steps)
        result, steps = self._result, self._given.steps
        done_before = len(result.rewards)
        if self._rank == 0:
            await self._push(done_before)
            result.before = result.before or await self._evaluate(0)
        await asyncio.to_thread(wait_for_all)
        with LiveCurve(console) as curve:
            batches = self._roll_out_ahead(done_before)
            for step in range(done_before + 1, steps + 1):
                if sum(result.rollouts) >= self._given.rollouts:
                    break
                started, known_before = time.monotonic(), self._known.num_rollouts
                records, gains, rewards = await _samples(next(batches))
                done = await asyncio.to_thread(update, self._model, self._optimizer, records, gains)
                reward, num_rollouts = await asyncio.to_thread(mean_of_all, rewards)
                result.rewards.append(reward)
                result.rollouts.append(self._known.num_rollouts - known_before if self._given.varied else num_rollouts)
                if self._rank == 0:
                    self._save()  # before others see it: what is resumed from is never older than what is served
                    await self._push(step)
                await asyncio.to_thread(wait_for_all)  # rollouts that begin now are of the new policy
                if self._rank == 0:
                    line = self._line(result.rewards, num_rollouts, done, time.monotonic() - started)
                    curve.show(result.rewards, line)
        if self._rank == 0:
            result.after = await self._evaluate(steps + 1)
        return result

    def _roll_out_ahead(self, done_before: int) -> Iterator[AsyncIterable[Group]]:
        """The batches of the steps that are left, each submitted as many steps ahead as there may be."""
        waiting: deque[AsyncIterable[Group]] = deque()
        num_tasks = self._given.prompts * (CANDIDATES if self._given.varied else 1)
        to_train_on = Tasks(self._given.seed).to_train_on(self._given.tasks)
        for step in range(1, self._given.steps + 1):
            tasks = list(islice(to_train_on, num_tasks))  # those of earlier steps too: the order stays the same
            if step > done_before:
                waiting.append(self._roll_out(tasks, step))
            if len(waiting) > self._given.ahead:
                yield waiting.popleft()
        yield from waiting

    def _roll_out(self, tasks: list[Row], step: int) -> AsyncIterable[Group]:
        given, rows = self._given, _numbered(tasks, step)
        options: dict[str, Any] = {"num_samples": given.samples, "straggler_s": STRAGGLER_S}
        options["max_staleness"] = given.ahead
        if not given.varied:
            return self._run.run_rollouts(rows[self._rank :: given.processes], **options)
        rows = self._known.most_informative(rows, len(rows))
        return varied_groups(self._run, rows, given.prompts, known=self._known, first=FIRST, **options)

    def _save(self) -> None:
        state = {"model": self._model.state_dict(), "optimizer": self._optimizer.state_dict(), **vars(self._result)}
        unfinished = self._checkpoint.with_suffix(".new")
        torch.save(state, unfinished)
        unfinished.replace(self._checkpoint)

    def _resume(self) -> None:
        state = torch.load(self._checkpoint, map_location=self._given.device, weights_only=True)
        self._model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])
        self._result = Result(state["rewards"], state["rollouts"], state["before"])

    async def _push(self, step: int) -> None:
        weights = save({name: tensor.contiguous() for name, tensor in self._model.state_dict().items()})
        await self._run.update_weights(f"step-{step}", weights=weights)

    async def _on_loaded(self, policy_version: str) -> None:
        self._loaded.append(policy_version)

    async def _evaluate(self, step: int) -> dict[str, float]:
        """The mean reward of the held-out tasks, or of other draws of those to train on, by kind."""
        tasks, num_drawn = Tasks(self._given.seed), self._given.evaluation_draws
        rows = _numbered(tasks.draw_again(num_drawn) if num_drawn else tasks.held_out(), step)
        rewards: dict[str, list[float]] = defaultdict(list)
        async for group in self._run.run_rollouts(rows, num_samples=self._given.evaluation_samples):
            if not group.is_complete:
                raise RuntimeError(f"a task of the evaluation failed: {group.failures[0].message}")
            rewards[group.example["kind"]] += group.rewards
        return {kind: statistics.fmean(rewards[kind]) for kind in KINDS if rewards[kind]}

    def _line(self, rewards: list[float], num_rollouts: int, done: Update, seconds: float) -> str:
        return (
            f"step {len(rewards)} of {self._given.steps}: reward {rewards[-1]:.3f} of {num_rollouts} rollouts, "
            f"engine on {self._loaded[-1]}, log probs differ by {done.gap:.1e}, {done.clipped:.1%} clipped, "
            f"{seconds:.1f} s"
        )


async def _samples(batch: AsyncIterable[Group]) -> tuple[list[Record], list[float], list[float]]:
    """Records, their advantages and rewards. A group with one sample or none teaches nothing."""
    records: list[Record] = []
    gains: list[float] = []
    rewards: list[float] = []
    failures: list[SampleFailed] = []
    async for group in batch:
        rewards += group.rewards
        failures += group.failures
        if len(group.samples) > 1:
            records += [sample.record() for sample in group.samples]
            gains += advantages(group.rewards)
    if not records:
        why = failures[0].message if failures else "each group has one sample at most"
        raise RuntimeError(f"there is nothing to train on in this step, {len(failures)} rollouts failed: {why}")
    return records, gains, rewards


def _numbered(rows: Iterable[Row], step: int) -> list[Row]:
    """Rows with the task indices of a step: a trainer that comes back asks for the same ones."""
    return [{**row, "_ng_task_index": step * TASKS_OF_A_STEP + at} for at, row in enumerate(rows)]


def configuration(**serving: int) -> Config:
    """The engine, the agents and the environments.

    Args:
        serving: arguments of vLLM in place of those of the configuration.
    """
    serve = "policy_model.responses_api_models.local_vllm_model.vllm_serve_kwargs"
    arguments = [f"{serve}.{name}={value}" for name, value in {"max_num_seqs": 256, **serving}.items()]
    return load([str(CONFIG)], [*arguments, f"policy_model_name={POLICY}"])


@asynccontextmanager
async def cluster_at(given: argparse.Namespace, console: Console) -> AsyncIterator[str]:
    """The cluster that was named, or one of this program."""
    if given.nats is not None:
        yield given.nats
        return
    folder: Path = given.output / "cluster"
    console.print(f"starting vLLM and the workers; logs are in {folder / 'logs'}")
    async with Cluster(configuration().instances, folder=folder, log_level="warning") as cluster:
        yield cluster.url


def run_of(folder: Path) -> str:
    """The run of a training, by its folder: that of another one on the same cluster has rollouts of other policies."""
    return re.sub(r"[^A-Za-z0-9_-]", "-", folder.absolute().name)[:64]


async def run(given: argparse.Namespace, console: Console) -> Result:
    folder: Path = given.output
    async with cluster_at(given, console) as url:
        training_run = await TrainingRun.connect(url, run_of(given.output))
        meeting = folder / f"processes-{os.getpid()}"
        others = start_others(run_other, given.processes, given, url, meeting)
        try:
            await asyncio.to_thread(meet, meeting, 0, given.processes)
            result = await Training(training_run, given, 0).train(console)
        finally:
            await training_run.close()
            for other in others:
                other.kill()
    (folder / RESULT).write_text(json.dumps(vars(result), indent=2) + "\n", encoding="utf-8")
    save_png(folder / "curve.png", result.rewards, mean(result.before), mean(result.after))
    return result


def run_other(rank: int, given: argparse.Namespace, url: str, meeting: Path) -> None:
    """Train beside the first process."""

    async def train() -> None:
        training_run = await TrainingRun.connect(url, run_of(given.output))
        try:
            await Training(training_run, given, rank).train(Console(quiet=True))
        finally:
            await training_run.close()

    prepare(given)
    meet(meeting, rank, given.processes)
    asyncio.run(train())


def prepare(given: argparse.Namespace) -> None:
    torch.manual_seed(given.seed)
    torch.set_num_threads(1)
    disable_progress_bar()


def mean(rewards: dict[str, float]) -> float:
    return statistics.fmean(rewards.values())


def report(result: Result, folder: Path, console: Console) -> None:
    table = Table("tasks of the evaluation", "before", "after")
    for kind in result.before:
        table.add_row(kind, f"{result.before[kind]:.3f}", f"{result.after[kind]:.3f}")
    table.add_row("mean", f"{mean(result.before):.3f}", f"{mean(result.after):.3f}")
    console.print(table)
    console.print(f"curve in {folder / 'curve.png'}, numbers in {folder / RESULT}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--prompts", type=int, default=32, help="tasks of a step")
    parser.add_argument("--samples", type=int, default=8, help="rollouts of a task")
    parser.add_argument("--tasks", type=int, default=0, help="train on so many, again and again; 0: always on others")
    parser.add_argument("--ahead", type=int, help="steps whose rollouts are made ahead: updates they may be old; 1")
    parser.add_argument("--varied", action="store_true", help="train on groups that vary only; not with --ahead")
    parser.add_argument("--rollouts", type=int, default=10**9, help="end after the step in which so many were made")
    parser.add_argument("--evaluation-samples", type=int, default=8, help="rollouts of a task of the evaluation")
    parser.add_argument("--evaluation-draws", type=int, default=0, help="of the tasks to train on; 0: held-out tasks")
    parser.add_argument("--processes", type=int, default=1, help="that train, each with a part of the tasks of a step")
    parser.add_argument("--device", default="cpu", help="of the policy that is trained, for example cuda")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--nats", help="URL of a cluster that serves examples/demo_vllm/config.yaml; default: its own")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, help="default: that of a stopped training with these arguments, or new")
    given: Any = parser.parse_args()
    if given.tasks < 0:
        parser.error(f"--tasks {given.tasks}: train on so many tasks, or on new ones in each step with 0")
    if given.steps < 1 or given.prompts < 1 or given.samples < 2:
        parser.error("at least one step, one task and two samples of it are needed")
    if not 1 <= given.processes <= given.prompts:
        parser.error(f"--processes {given.processes}: there are 1 to {given.prompts}, one for each task of a step")
    if given.varied and (given.ahead or given.processes > 1):
        parser.error("--varied decides by the rollouts of the step itself, on one process: without --ahead")
    if given.ahead is None:
        given.ahead = 0 if given.varied else 1
    if given.ahead < 0:
        parser.error(f"--ahead {given.ahead}: rollouts are made 0 or more steps ahead")
    settings = json.dumps({name: value for name, value in vars(given).items() if name not in ("output", "nats")})
    given.output = given.output or stopped(settings) or Path("runs") / time.strftime(f"{FOLDER}%Y%m%d-%H%M%S")
    if (given.output / RESULT).exists():
        parser.error(f"{given.output} has a finished training")
    given.output.mkdir(parents=True, exist_ok=True)
    (given.output / ARGUMENTS).write_text(settings, encoding="utf-8")
    prepare(given)
    console = Console()
    try:
        report(asyncio.run(run(given, console)), given.output, console)
    except KeyboardInterrupt:
        console.print("stopped; the same command continues, in", given.output)
        raise SystemExit(130) from None


def stopped(settings: str) -> Path | None:
    """Return the folder of the newest training with these settings, if it was stopped before its end."""
    folders = [file.parent for file in Path("runs").glob(f"{FOLDER}*/{ARGUMENTS}") if file.read_text() == settings]
    newest = max(folders, default=None)
    return None if newest is None or (newest / RESULT).exists() else newest


if __name__ == "__main__":
    main()
