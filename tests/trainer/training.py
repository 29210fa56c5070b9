"""Whole trainings of the tiny policy: a cluster with vLLM, a trainer in a Python of its own, and the deaths of both."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import signal
import statistics
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from gymq.bus import Bus
from gymq.bus.queue.outcome_store import OutcomeStore
from gymq.cluster.child import Child
from gymq.cluster.launch import Cluster
from gymq.config import load
from gymq.protocol.instances import Instance
from gymq.protocol.messages import VerifiedRollout
from tests.support.waiting import until
from tests.vllm.served import SERVED, Served

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "examples" / "demo_vllm" / "config.yaml"
CURVES = ROOT / "docs" / "images"
DEADLINE_S = 1200.0  # for a part of a training
SMOOTHED_OVER = 5  # steps
RISE = 0.2  # of the mean reward that shows that a policy was trained


@asynccontextmanager
async def tiny_cluster(folder: Path, engine: Served | None = None) -> AsyncIterator[Cluster]:
    """The workers of examples/demo_vllm; with an engine, the model is `vllm_model` in front of it."""
    serve = "policy_model.responses_api_models.local_vllm_model.vllm_serve_kwargs"
    config = load([str(CONFIG)], [f"{serve}.max_num_seqs=256"])
    instances = config.instances
    if engine is not None:
        options = {
            "base_url": f"{engine.root}/v1",
            "api_key": "none",
            "model": SERVED,
            "return_token_id_information": True,
            "request_prompt_and_generation_token_ids": True,
            "uses_reasoning_parser": False,
        }
        in_front = Instance("policy_model", "models", "vllm_model", options)
        instances = [in_front if instance.name == in_front.name else instance for instance in instances]
    async with Cluster(instances, folder=folder, log_level="warning") as cluster:
        yield cluster


class Trainer:
    """A trainer in a process of its own, which the same command resumes."""

    def __init__(self, python: str, script: str, output: Path, *arguments: str) -> None:
        self.output = output
        self._command = [python, str(ROOT / "examples" / script), "--output", str(output), *arguments]
        self._log = output.with_suffix(".log")
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command, stdout=log, stderr=log, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}
            )

    async def kill(self) -> None:
        assert self._process is not None
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()

    @property
    def has_ended(self) -> bool:
        return self._process is not None and self._process.returncode is not None

    def log(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]

    async def until_step(self, step: int) -> None:
        """Wait until a checkpoint of this step, or of a later one, is there."""
        await until(lambda: self.has_ended or self._last_step() >= step, deadline_s=DEADLINE_S)
        assert not self.has_ended, self.log()

    def _last_step(self) -> int:
        steps = [int(path.name.split("-")[1]) for path in self.output.glob("checkpoint-*")]
        steps += [int(path.read_text() or 0) for path in self.output.glob("checkpoints/latest_*.txt")]
        return max(steps, default=0)

    async def until_ended(self) -> list[float]:
        """The reward of each step."""
        await until(lambda: self.has_ended, deadline_s=DEADLINE_S)
        assert self._process is not None
        assert self._process.returncode == 0, self.log()
        rewards: list[float] = self.result()["rewards"]
        return rewards

    def result(self) -> dict[str, Any]:
        result: dict[str, Any] = json.loads((self.output / "result.json").read_text())
        return result


def kill_worker(cluster: Cluster, name: str) -> None:
    """Kill the process of an instance; the cluster starts another."""
    children = [child for child in cluster.children if isinstance(child, Child)]
    (child,) = [child for child in children if any(one.name == name for one in child.spec.instances)]
    assert child.process is not None
    os.killpg(child.process.pid, signal.SIGKILL)


async def samples_of(url: str, run: str) -> Counter[int]:
    """How many verified rollouts of each task a run has."""
    return Counter(outcome.task_index for outcome in await verified(url, run))


async def verified(url: str, run: str) -> list[VerifiedRollout]:
    """The verified rollouts of a run."""
    bus = await Bus.connect(url, role="test", name="test")
    try:
        stored = [outcome async for _, outcome in OutcomeStore(bus).read(run)]
    finally:
        await bus.close()
    assert len({outcome.rollout_id for outcome in stored}) == len(stored)
    return [outcome for outcome in stored if isinstance(outcome, VerifiedRollout)]


def rise(rewards: Sequence[float], num_steps: int = SMOOTHED_OVER) -> float:
    """How much more reward the last steps have than the first ones."""
    return statistics.fmean(rewards[-num_steps:]) - statistics.fmean(rewards[:num_steps])


def draw(name: str, rewards: Sequence[float], events: dict[str, int], folder: Path) -> None:
    """Draw a curve, with the steps at which something was killed; GYMQ_WRITE_GOLDEN=1 keeps it for the documents."""
    spec = importlib.util.spec_from_file_location("curve", ROOT / "examples" / "train_tiny" / "curve.py")
    assert spec is not None
    assert spec.loader is not None
    curve = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(curve)
    kept = CURVES if os.environ.get("GYMQ_WRITE_GOLDEN") else folder
    curve.save_training(kept / f"training_{name}.svg", rewards, events)
