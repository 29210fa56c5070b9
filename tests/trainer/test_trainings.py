"""Other trainers train the tiny policy on rollouts of a cluster; deaths of a worker and of the trainer cost nothing."""

import json
import os
import subprocess
import urllib.request
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from gymq.trainer import TrainingRun, read_rows
from gymq.trainer.groups import Group
from tests.support.compatibility import record
from tests.vllm.served import SERVED, Served, serving
from tests.vllm.tiny_policy import MAX_MODEL_LEN, POLICY

from .training import CONFIG, RISE, Trainer, draw, kill_worker, rise, samples_of, tiny_cluster, verified

pytest.importorskip("vllm", reason="vLLM is not installed here; `make test-in NAME=trainers` installs it")

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
        pytest.skip(f"{given.python} names no Python with this trainer; `make test-in NAME=trainers` sets it")
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


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("given", "steps", "samples_of_step"), [(SKYRL, STEPS, SAMPLES_OF_STEP), (VERL, 3, 32)], ids=["skyrl", "verl"]
)
async def test_a_trainer_with_a_limit_on_staleness_trains_the_policy_of_its_own_engine(
    given: Given, steps: int, samples_of_step: int, tmp_path: Path
) -> None:
    python = os.environ.get(given.python, "")
    if not python:
        pytest.skip(f"{given.python} names no Python with this trainer; `make test-in NAME=trainers` sets it")
    development = {"VLLM_SERVER_DEV_MODE": "1"}
    async with (
        serving(tmp_path, environment=development, max_model_len=MAX_MODEL_LEN, max_num_seqs=64) as engine,
        tiny_cluster(tmp_path / "cluster", engine) as cluster,
    ):
        arguments = ["--nats", cluster.url, "--engine", engine.root, "--steps", str(steps)]
        arguments += ["--samples-of-step", str(samples_of_step)]
        trainer = Trainer(python, f"trainers/{given.name}_grpo.py", tmp_path / given.name, *arguments)
        await trainer.start()
        try:
            await trainer.until_step(1)
            await trainer.kill()
            await trainer.start()
            groups = await rolled_out_beside(cluster.url, trainer)
            rewards = await trainer.until_ended()
        finally:
            await trainer.kill()
        rollouts = await verified(cluster.url, given.name)
        in_engine = log_probs(engine)
    begun = Counter(tuple(rollout.policy_versions) for rollout in rollouts)
    assert begun == {(f"step-{step}",): samples_of_step for step in range(steps)}  # none older than the newest
    assert all(len({sample.policy_versions[0] for sample in group.samples}) <= 1 for group in groups)
    assert in_engine == pytest.approx(log_probs_of(tmp_path / given.name / "engine"), abs=1e-3)
    assert in_engine != pytest.approx(log_probs_of(POLICY), abs=1e-3)
    if steps < STEPS:
        return  # too few for the policy to learn
    assert rise(rewards, EPOCH) >= RISE, rewards
    rejected = [failure for group in groups for failure in group.failures]
    assert {failure.failure_class for failure in rejected} == {"stale"}
    assert len({sample.policy_versions[0] for group in groups for sample in group.samples}) > 2
    record(
        "Other trainers: whole trainings on an engine that they own",
        f"{given.name} {version_of(given.name, python)}",
        f"its trainer{given.workers}, a real `vllm serve`",
        f"{STEPS} updates of {SAMPLES_OF_STEP} rollouts, announced: reward up by {RISE} or more; "
        "beside it, rollouts that an update overtakes are rejected",
    )


async def rolled_out_beside(url: str, trainer: Trainer) -> list[Group]:
    """Roll out groups of the newest policy, one after the other, until its trainer has ended."""
    training = await TrainingRun.connect(url, "beside")
    rows = read_rows(CONFIG.with_name("rows.jsonl"))
    groups: list[Group] = []
    try:
        while not trainer.has_ended:
            row = {**rows[len(groups) % len(rows)], "_ng_task_index": len(groups)}
            groups += [group async for group in training.run_rollouts([row], num_samples=GROUP, max_staleness=0)]
    finally:
        await training.close()
    return groups


PROMPT = list(range(10, 30))


def log_probs(engine: Served) -> list[float]:
    """Those of the tokens of a prompt, by an engine."""
    body = {"model": SERVED, "prompt": PROMPT, "max_tokens": 1, "prompt_logprobs": 0}
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{engine.root}/v1/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        (choice,) = json.load(answer)["choices"]
    _, *ranked = choice["prompt_logprobs"]
    return [of_token[str(token)]["logprob"] for token, of_token in zip(PROMPT[1:], ranked, strict=True)]


def log_probs_of(checkpoint: Path) -> list[float]:
    """The same by a checkpoint."""
    import torch
    from transformers import AutoModelForCausalLM

    ids = torch.tensor([PROMPT])
    with torch.no_grad():
        logits = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).eval()(ids).logits
    log_probs = logits[:, :-1].log_softmax(-1).gather(-1, ids[:, 1:, None])
    return [float(value) for value in log_probs.flatten()]


def version_of(package: str, python: str) -> str:
    program = f"import importlib.metadata; print(importlib.metadata.version({package!r}))"
    return subprocess.check_output([python, "-c", program], text=True).strip()
