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
from collections import defaultdict
from collections.abc import AsyncIterable, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from curve import LiveCurve, save_png
from own_grpo import POLICY, update
from processes import average_gradients, mean_of_all, meet, of_all, start_others, wait_for_all
from rich.console import Console
from rich.table import Table
from safetensors.torch import save
from tasks import KINDS, Row, Tasks
from transformers import AutoModelForCausalLM
from transformers.utils.logging import disable_progress_bar

from gymq.cluster.launch import Cluster
from gymq.config import Config, load
from gymq.ext.sampling import Difficulties
from gymq.trainer import TrainingBatch, TrainingRun

CONFIG = Path(__file__).parents[1] / "demo_vllm" / "config.yaml"
EVALUATION = 1_000_000  # first task index of an evaluation, times its number
CANDIDATES = 4  # tasks that `--varied` chooses from, for each group
FIRST = 4  # rollouts after which `--varied` replaces a group that does not vary
FOLDER = "train-tiny-"  # how the names of folders begin, below `runs`
ARGUMENTS, RESULT = "arguments.json", "result.json"  # files in them


@dataclass
class Result:
    """What a training came to."""

    rewards: list[float] = field(default_factory=list)  # mean of each step
    rollouts: list[int] = field(default_factory=list)  # of each step, those of replaced groups too
    seconds: list[float] = field(default_factory=list)  # that each step took
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
        self._optimizer.register_step_pre_hook(lambda *_: average_gradients(self._model))
        self._result = Result()
        self._checkpoint: Path = given.output / "checkpoint.pt"
        self._known = Difficulties()

    async def train(self, console: Console) -> Result:
        state = self._resume() if self._checkpoint.exists() else None
        if state and self._given.varied:
            self._known = await Difficulties.of_run(self._run, range(state["next"]))
        if self._rank == 0:
            await self._push(len(self._result.rewards))
            self._result.before = self._result.before or await self._evaluate(0)
        await asyncio.to_thread(wait_for_all)
        started, known_before = time.monotonic(), self._known.num_rollouts
        with LiveCurve(console) as curve:
            async for batch in self._batches(state):
                gap, clipped = await asyncio.to_thread(self._update, batch)
                num_rollouts = self._result.rollouts[-1]
                if self._given.varied:
                    self._result.rollouts[-1] = self._known.num_rollouts - known_before
                await self._save_and_push(batch.state)
                self._result.seconds.append(time.monotonic() - started)
                if self._rank == 0:
                    line = f"{num_rollouts} rollouts, log probs differ by {gap:.1e}, {clipped:.1%} clipped"
                    curve.show(self._result.rewards, self._line(batch, line))
                if self._is_done:
                    break
                started, known_before = time.monotonic(), self._known.num_rollouts
        if self._rank == 0:
            self._result.after = await self._evaluate(self._given.steps + 1)
        return self._result

    @property
    def _is_done(self) -> bool:
        done = self._result
        return len(done.rewards) >= self._given.steps or sum(done.rollouts) >= self._given.rollouts

    def _tasks(self) -> Iterator[Row]:
        return Tasks(self._given.seed).to_train_on(self._given.tasks)

    def _batches(self, state: dict[str, Any] | None) -> AsyncIterable[TrainingBatch]:
        """The batches of the steps that are left."""
        given, tasks = self._given, self._tasks()
        options: dict[str, Any] = {"ahead": given.ahead, "share": (self._rank, given.processes), "state": state}
        if given.varied:
            options |= {"varied": True, "first": FIRST, "known": self._known, "candidates": CANDIDATES}
        else:
            tasks = islice(tasks, given.steps * given.prompts)
        groups = given.prompts // given.processes
        return self._run.train_batches(tasks, groups=groups, num_samples=given.samples, **options)

    def _update(self, batch: TrainingBatch) -> tuple[float, float]:
        gap, clipped = update(self._model, self._optimizer, batch.tensors(self._given.device))
        reward, num_rollouts = mean_of_all([reward for group in batch.groups for reward in group.rewards])
        self._result.rewards.append(reward)
        self._result.rollouts.append(num_rollouts)
        return gap, clipped

    async def _save_and_push(self, state: dict[str, Any]) -> None:
        """Save before others see it: what is resumed from is never older than what is served."""
        states = await asyncio.to_thread(of_all, state)
        if self._rank == 0:
            unfinished = self._checkpoint.with_suffix(".new")
            weights = {"model": self._model.state_dict(), "optimizer": self._optimizer.state_dict()}
            torch.save({**weights, "states": states, "result": vars(self._result)}, unfinished)
            unfinished.replace(self._checkpoint)
            await self._push(len(self._result.rewards))
        await asyncio.to_thread(wait_for_all)  # rollouts that begin now are of the new policy

    def _resume(self) -> dict[str, Any]:
        """Load the checkpoint, and return the state of the batches of this process."""
        saved = torch.load(self._checkpoint, map_location=self._given.device, weights_only=True)
        self._model.load_state_dict(saved["model"])
        self._optimizer.load_state_dict(saved["optimizer"])
        self._result = Result(**saved["result"])
        state: dict[str, Any] = saved["states"][self._rank]
        return state

    async def _push(self, step: int) -> None:
        weights = save({name: tensor.contiguous() for name, tensor in self._model.state_dict().items()})
        await self._run.update_weights(f"step-{step}", weights=weights)

    async def _evaluate(self, step: int) -> dict[str, float]:
        """The mean reward of the held-out tasks, or of other draws of those to train on, by kind."""
        tasks, num_drawn = Tasks(self._given.seed), self._given.evaluation_draws
        drawn = tasks.draw_again(num_drawn) if num_drawn else tasks.held_out()
        rows = [{**row, "_ng_task_index": (step + 1) * EVALUATION + at} for at, row in enumerate(drawn)]
        rewards: dict[str, list[float]] = defaultdict(list)
        async for group in self._run.run_rollouts(rows, num_samples=self._given.evaluation_samples):
            if not group.is_complete:
                raise RuntimeError(f"a task of the evaluation failed: {group.failures[0].message}")
            rewards[group.example["kind"]] += group.rewards
        return {kind: statistics.fmean(rewards[kind]) for kind in KINDS if rewards[kind]}

    def _line(self, batch: TrainingBatch, what: str) -> str:
        rewards, seconds = self._result.rewards, self._result.seconds[-1]
        return (
            f"step {len(rewards)} of {self._given.steps}: reward {rewards[-1]:.3f} of {what}, "
            f"{batch.metrics['lag_max']:.0f} updates behind, {batch.metrics['wait_s']:.1f} of {seconds:.1f} s waited"
        )


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
    if given.prompts % given.processes:
        parser.error(f"--processes {given.processes}: each has as many of the {given.prompts} tasks of a step")
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
