"""TRL trains the tiny policy on rollouts of a cluster; the deaths of a worker and of the trainer cost it nothing."""

import os
from pathlib import Path

import pytest

from .training import RISE, Trainer, draw, kill_worker, rise, samples_of, tiny_cluster

pytest.importorskip("vllm", reason="vLLM is not installed here; `make test-trainers` installs it")

PYTHON = os.environ.get("GYMQ_TRL_PYTHON", "")
STEPS = 30
SAMPLES_OF_STEP = 128
GROUP = 8
KILLED_WORKER_AT, KILLED_TRAINER_AT = 6, 10

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(not PYTHON, reason="GYMQ_TRL_PYTHON names no Python with TRL; `make test-trainers` sets it"),
]


@pytest.mark.timeout(3600)
async def test_trl_trains_and_survives_the_deaths_of_a_worker_and_of_itself(tmp_path: Path) -> None:
    async with tiny_cluster(tmp_path / "cluster") as cluster:
        arguments = ["--nats", cluster.url, "--run", "trl", "--steps", str(STEPS)]
        trainer = Trainer(
            PYTHON, "trainers/trl_grpo.py", tmp_path / "trl", *arguments, "--samples-of-step", str(SAMPLES_OF_STEP)
        )
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
        samples = await samples_of(cluster.url, "trl")
    draw("trl", rewards, {"worker killed": KILLED_WORKER_AT, "trainer killed": KILLED_TRAINER_AT}, tmp_path)
    assert len(rewards) == STEPS
    assert max(samples.values()) == GROUP  # none was made twice
    assert sum(samples.values()) == STEPS * SAMPLES_OF_STEP
    assert rise(rewards) >= RISE, rewards
