"""Our own loop on two processes, up to four updates off-policy: it learns, and survives the deaths of all involved."""

import re
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from .training import RISE, Trainer, draw, kill_worker, rise, samples_of, tiny_cluster

pytest.importorskip("vllm", reason="vLLM is not installed here; `make test-in NAME=trainers` installs it")

EVALUATION = 1_000_000  # first task index of those of evaluations, in examples/train_tiny/train.py


@dataclass(frozen=True)
class Settings:
    """A training, and the steps after which an agent and the trainer are killed."""

    steps: int
    prompts: int
    tasks: int  # 0: always others
    ahead: int
    learning_rate: float
    killed_worker_at: int
    killed_trainer_at: int
    samples: int = 8
    seed: int = 0

    def arguments(self) -> list[str]:
        of_command = ("steps", "prompts", "tasks", "ahead", "learning_rate", "samples", "seed")
        return [text for name in of_command for text in (f"--{name.replace('_', '-')}", str(getattr(self, name)))]


SMALL = Settings(28, 12, tasks=12, ahead=2, learning_rate=1e-3, killed_worker_at=4, killed_trainer_at=8, seed=1)
LARGE = Settings(40, 24, tasks=0, ahead=4, learning_rate=4e-4, killed_worker_at=6, killed_trainer_at=12)

pytestmark = pytest.mark.vllm


class OwnTrainer(Trainer):
    def _last_step(self) -> int:
        return max(map(int, re.findall(r"^step (\d+) of", self.log(), re.MULTILINE)), default=0)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("given", [SMALL, LARGE], ids=["small", "large"])
async def test_two_processes_learn_from_rollouts_of_older_policies_and_survive_deaths(
    tmp_path: Path, given: Settings
) -> None:
    async with tiny_cluster(tmp_path / "cluster") as cluster:
        arguments = ["--nats", cluster.url, "--processes", "2", "--evaluation-samples", "2", *given.arguments()]
        trainer = OwnTrainer(sys.executable, "train_tiny/train.py", tmp_path / "own", *arguments)
        await trainer.start()
        try:
            await trainer.until_step(given.killed_worker_at)
            kill_worker(cluster, "math_with_judge_simple_agent")
            await trainer.until_step(given.killed_trainer_at)
            await trainer.kill()
            await trainer.start()
            rewards = await trainer.until_ended()
        finally:
            await trainer.kill()
        samples = await samples_of(cluster.url, "own")
    if given is LARGE:
        events = {"worker killed": given.killed_worker_at, "trainer killed": given.killed_trainer_at}
        draw("own", rewards, events, tmp_path)
    assert len(rewards) == given.steps
    trained = {task: count for task, count in samples.items() if task < EVALUATION}
    assert max(trained.values()) == given.samples  # none was made twice
    assert len(trained) == given.steps * given.prompts
    assert sum(trainer.result()["rollouts"]) >= 0.95 * given.steps * given.prompts * given.samples  # few were cut
    assert rise(rewards) >= RISE, rewards
