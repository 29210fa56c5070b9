"""Our own loop on two processes, up to four updates off-policy: it learns, and survives the deaths of all involved."""

import re
import sys
from pathlib import Path

import pytest

from .training import RISE, Trainer, draw, kill_worker, rise, samples_of, tiny_cluster

pytest.importorskip("vllm", reason="vLLM is not installed here; `make test-trainers` installs it")

STEPS, PROMPTS, GROUP = 40, 24, 8
AHEAD, LEARNING_RATE = 4, 4e-4
TASKS_OF_A_STEP = 10_000  # indices, in examples/train_tiny/train.py
KILLED_WORKER_AT, KILLED_TRAINER_AT = 6, 12

pytestmark = pytest.mark.vllm


class OwnTrainer(Trainer):
    def _last_step(self) -> int:
        return max(map(int, re.findall(r"^step (\d+) of", self.log(), re.MULTILINE)), default=0)


@pytest.mark.timeout(3600)
async def test_two_processes_learn_from_rollouts_of_older_policies_and_survive_deaths(tmp_path: Path) -> None:
    async with tiny_cluster(tmp_path / "cluster") as cluster:
        settings = {"nats": cluster.url, "processes": 2, "ahead": AHEAD, "learning-rate": LEARNING_RATE}
        sizes = {"steps": STEPS, "prompts": PROMPTS, "samples": GROUP}
        arguments = [text for name, value in (settings | sizes).items() for text in (f"--{name}", str(value))]
        trainer = OwnTrainer(sys.executable, "train_tiny/train.py", tmp_path / "own", *arguments)
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
        samples = await samples_of(cluster.url, "train-tiny")
    events = {"worker killed": KILLED_WORKER_AT, "trainer killed": KILLED_TRAINER_AT}
    draw("own", rewards, events, tmp_path)
    assert len(rewards) == STEPS
    trained = {task: count for task, count in samples.items() if 1 <= task // TASKS_OF_A_STEP <= STEPS}
    assert max(trained.values()) == GROUP  # none was made twice
    assert len(trained) == STEPS * PROMPTS
    assert rise(rewards) >= RISE, rewards
