"""The example that trains a tiny policy, run as a user runs it."""

import argparse
import importlib
import json
import random
import statistics
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest
from rich.console import Console

from gymq.protocol.messages import VerifiedRollout
from gymq.trainer import TrainingBatch
from gymq.trainer.batches import Batches
from gymq.trainer.groups import Group, Sample
from gymq.trainer.options import BatchOptions

pytest.importorskip("vllm", reason="vLLM is not installed here; `make test-in NAME=vllm` installs it")
pytest.importorskip("matplotlib", reason="matplotlib is not installed here; `make test-in NAME=vllm` installs it")

pytestmark = pytest.mark.vllm

TRAIN = Path(__file__).parents[2] / "examples" / "train_tiny" / "train.py"
AT_NIGHT = pytest.mark.nightly


def trained(output: Path, *arguments: object) -> tuple[dict[str, Any], str]:
    """The result of a training, and what it printed."""
    command = [sys.executable, str(TRAIN), "--output", str(output), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads((output / "result.json").read_text()), done.stdout


def test_a_training_draws_its_curve(tmp_path: Path) -> None:
    """That a policy gets better on tasks that come again is tested by `test_own_training.py`."""
    steps = 2
    sizes = ("--steps", steps, "--prompts", 4, "--tasks", 4, "--seed", 1, "--evaluation-samples", 2)
    result, printed = trained(tmp_path, *sizes)
    assert len(result["rewards"]) == steps
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert f"step {steps} of {steps}: reward" in printed


@AT_NIGHT
@pytest.mark.timeout(1500)
def test_the_reward_rises_on_tasks_that_were_trained_on_and_on_others(tmp_path: Path) -> None:
    result, _ = trained(tmp_path, "--steps", 40, "--prompts", 24)
    rewards = result["rewards"]
    assert statistics.fmean(rewards[-10:]) > statistics.fmean(rewards[:10]) + 0.1
    assert statistics.fmean(result["after"].values()) > statistics.fmean(result["before"].values())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--output", "."], "has a finished training"),
        pytest.param(["--samples", "1"], "two samples", marks=AT_NIGHT),
        pytest.param(["--tasks", "-1"], "--tasks -1: train on so many tasks", marks=AT_NIGHT),
        pytest.param(["--ahead", "-1"], "0 or more steps ahead", marks=AT_NIGHT),
        pytest.param(["--processes", "33"], "there are 1 to 32", marks=AT_NIGHT),
    ],
)
def test_a_command_line_that_does_not_fit_is_told_in_one_line(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    (tmp_path / "result.json").touch()
    command = [sys.executable, str(TRAIN), *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert message in done.stderr.splitlines()[-1]


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module of the example."""
    monkeypatch.syspath_prepend(str(TRAIN.parent))
    return importlib.import_module("train")


def test_the_same_command_continues_only_the_training_that_it_stopped(
    example: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, settings in {"1": "a", "2": "b", "3": "a"}.items():
        folder = tmp_path / "runs" / f"train-tiny-{name}"
        folder.mkdir(parents=True)
        (folder / "arguments.json").write_text(settings)
    assert example.stopped("a") == Path("runs/train-tiny-3")
    assert example.stopped("c") is None
    (tmp_path / "runs/train-tiny-3/result.json").touch()
    assert example.stopped("a") is None


def test_trainings_on_one_cluster_have_runs_of_their_own(example: ModuleType) -> None:
    assert example.run_of(Path("runs/my first.one")) == "my-first-one"
    assert example.run_of(Path("runs/two")) != example.run_of(Path("runs/three"))


class StoredRollouts:
    """What a training asks of its run: a rollout is made when it is asked for first, and stored."""

    def __init__(self) -> None:
        self.outcomes: dict[tuple[int, int], VerifiedRollout] = {}

    async def update_weights(self, policy_version: str, *, weights: bytes) -> None:
        pass

    async def stored(self) -> AsyncIterator[VerifiedRollout]:
        for outcome in self.outcomes.values():
            yield outcome

    def train_batches(self, rows: Iterable[dict[str, Any]], **options: Any) -> AsyncIterator[TrainingBatch]:
        async def updates_since() -> Callable[[str], int]:
            return lambda version: 0

        async def not_begun() -> set[int]:
            return set()

        made = BatchOptions.of(**options)
        run_rollouts: Any = self.run_rollouts
        return Batches(rows, made, run_rollouts, updates_since, not_begun, None).formed()

    async def run_rollouts(self, rows: Sequence[dict[str, Any]], *, num_samples: int, **_: Any) -> AsyncIterator[Group]:
        for row in rows:
            index = row["_ng_task_index"]
            rewards = [self._outcome(row, number).reward for number in range(num_samples)]
            samples = [Sample(number, {"reward": reward, **REPLY}, []) for number, reward in enumerate(rewards)]
            yield Group(index, row, samples, [], num_samples)

    def _outcome(self, row: dict[str, Any], number: int) -> VerifiedRollout:
        index = row["_ng_task_index"]
        chance = random.Random(f"{index % 7} {number}")  # of some tasks all rollouts have the same reward
        outcome = VerifiedRollout(
            run="train-tiny",
            task_index=index,
            rollout_index=number,
            agent="simple_agent",
            row=msgspec.json.encode(row),
            response={},
            reward=float(chance.random() < index % 7 / 6),
        )
        return self.outcomes.setdefault((index, number), outcome)


TOKENS = {"prompt_token_ids": [1], "generation_token_ids": [2], "generation_log_probs": [-0.1]}
REPLY = {"responses_create_params": {}, "response": {"output": [TOKENS]}, "gymq": {}}
SIZES = {"samples": 8, "rollouts": 10**9, "evaluation_samples": 1, "evaluation_draws": 0, "processes": 1, "ahead": 0}
OTHERS = {"device": "cpu", "seed": 0, "tasks": 0, "learning_rate": 0.0}


def test_a_step_of_masked_samples_leaves_the_policy_usable(example: ModuleType) -> None:
    torch: Any = importlib.import_module("torch")
    model = example.AutoModelForCausalLM.from_pretrained(example.POLICY, dtype=torch.float32)
    optimizer = torch.optim.AdamW(model.parameters())
    masked = [Sample(0, {"reward": reward, "mask_sample": True, **REPLY}, []) for reward in (0.0, 1.0)]
    batch = TrainingBatch([Group(0, {}, masked, [], 2)], 0, {}, 0, False, lambda version: 0, {})
    example.update(model, optimizer, batch.tensors())
    assert all(parameter.isfinite().all() for parameter in model.parameters())


async def test_a_training_saves_a_step_before_it_pushes_its_weights(
    example: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch: Any = importlib.import_module("torch")
    monkeypatch.setattr(example, "update", lambda *_: (0.0, 0.0))
    saved: dict[str, int] = {}  # steps, by the version that was pushed

    class Watched(StoredRollouts):
        async def update_weights(self, policy_version: str, *, weights: bytes) -> None:
            file = tmp_path / "checkpoint.pt"
            saved[policy_version] = (
                len(torch.load(file, weights_only=True)["result"]["rewards"]) if file.exists() else 0
            )

    given = argparse.Namespace(**SIZES, **OTHERS, steps=2, prompts=2, varied=False, output=tmp_path)
    await example.Training(Watched(), given, 0).train(Console(quiet=True))
    assert saved == {"step-0": 0, "step-1": 1, "step-2": 2}


async def test_a_resumed_training_counts_the_rollouts_of_the_step_that_was_broken_off(
    example: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps_until_death = [9]

    def update(*_: object) -> tuple[float, float]:
        steps_until_death[0] -= 1
        if not steps_until_death[0]:
            raise InterruptedError
        return 0.0, 0.0

    monkeypatch.setattr(example, "update", update)

    async def train(name: str, run: StoredRollouts) -> Any:
        output = tmp_path / name
        output.mkdir(exist_ok=True)
        given = argparse.Namespace(**SIZES, **OTHERS, steps=3, prompts=4, varied=True, output=output)
        return await example.Training(run, given, 0).train(Console(quiet=True))

    undisturbed = await train("undisturbed", StoredRollouts())
    run = StoredRollouts()
    steps_until_death[0] = 2
    with pytest.raises(InterruptedError):
        await train("killed", run)
    resumed = await train("killed", run)
    assert resumed.rollouts == undisturbed.rollouts
    assert resumed.rewards == undisturbed.rewards
    assert sum(resumed.rollouts) == sum(index < example.EVALUATION for index, _ in run.outcomes)
