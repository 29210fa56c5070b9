"""Other trainers train the tiny policy on rollouts of a cluster; deaths of a worker and of the trainer cost nothing."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.compatibility import record

from .training import RISE, Trainer, draw, kill_worker, rise, samples_of, tiny_cluster

pytest.importorskip("vllm", reason="vLLM is not installed here; `make test-trainers` installs it")

STEPS = 30
SAMPLES_OF_STEP = 128
GROUP = 8
EPOCH = 3  # steps that have each of the 48 tasks once
KILLED_WORKER_AT, KILLED_TRAINER_AT = 6, 10

pytestmark = pytest.mark.vllm


@dataclass(frozen=True)
class Given:
    """A trainer, and the variable that names a Python in which it is installed.

    Attributes:
        workers: what holds the policy.
    """

    name: str
    python: str
    workers: str = " with workers of our own"


TRL = Given("trl", "GYMQ_TRL_PYTHON", workers="")
SKYRL = Given("skyrl", "GYMQ_GENERATORS_PYTHON")
VERL = Given("verl", "GYMQ_GENERATORS_PYTHON")


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("given", [TRL, SKYRL, VERL], ids=["trl", "skyrl", "verl"])
async def test_a_trainer_trains_and_survives_the_deaths_of_a_worker_and_of_itself(given: Given, tmp_path: Path) -> None:
    python = os.environ.get(given.python, "")
    if not python:
        pytest.skip(f"{given.python} names no Python with this trainer; `make test-trainers` sets it")
    async with tiny_cluster(tmp_path / "cluster") as cluster:
        arguments = ["--nats", cluster.url, "--steps", str(STEPS)]
        arguments += ["--samples-of-step", str(SAMPLES_OF_STEP)]
        trainer = Trainer(python, f"trainers/{given.name}_grpo.py", tmp_path / given.name, *arguments)
        await trainer.start()
        try:
            await trainer.until_step(KILLED_WORKER_AT)
            kill_worker(cluster, "math_with_judge_simple_agent")
            await trainer.until_step(KILLED_TRAINER_AT)
            await trainer.kill()
            await trainer.start()
            rewards = await trainer.until_ended()
        finally:
            await trainer.kill()
        samples = await samples_of(cluster.url, given.name)
    draw(given.name, rewards, {"worker killed": KILLED_WORKER_AT, "trainer killed": KILLED_TRAINER_AT}, tmp_path)
    assert len(rewards) == STEPS
    assert max(samples.values()) == GROUP  # none was made twice
    assert sum(samples.values()) == STEPS * SAMPLES_OF_STEP
    assert rise(rewards, EPOCH) >= RISE, rewards
    record(
        "Other trainers: whole trainings on the CPU",
        f"{given.name} {version_of(given.name, python)}",
        f"its trainer{given.workers}, vLLM",
        f"{STEPS} updates of {SAMPLES_OF_STEP} rollouts, an agent and the trainer killed: reward up by {RISE} or more",
    )


def version_of(package: str, python: str) -> str:
    program = f"import importlib.metadata; print(importlib.metadata.version({package!r}))"
    return subprocess.check_output([python, "-c", program], text=True).strip()
