"""No reply breaks a verifier: a reward in its range, or a refusal that says why, and the same when asked again."""

import json
from pathlib import Path
from typing import Any

import pytest
from gymq.workers.resources.mini_swe_agent.worker import find_patch

import gymq
from gymq.config import load
from gymq.execution.loading import registry
from gymq.protocol.codec import encode
from gymq.protocol.messages import FailureClass, Verified
from gymq.testing import Harness, ScriptedModel, reply

from .hostile import RESPONSES

RESOURCES = Path(__file__).parents[3] / "workers" / "resources"
MODEL = RESOURCES.parent / "models" / "simulated_model" / "config.yaml"

# What takes all the time it is given is not given much.
OPTIONS = {"math_with_judge": {"library_verifier_timeout_seconds": 1.0}}

OUTPUT = {"process_status": "failed", "stdout": "", "stderr": "t.lean:1:0: error: no\n" * 1000}


async def compile_nothing(_url: str, _body: dict[str, Any], _timeout_s: float) -> tuple[int, str]:
    return 200, json.dumps(OUTPUT)


async def find_the_patch_only(_instance: dict[str, Any], response: dict[str, Any]) -> None:
    find_patch(response)


# Members in place of which something stands in, so that the rest can be tried without a sandbox.
MOCKS: dict[str, dict[str, Any]] = {
    "math_formal_lean": {"post": compile_nothing},
    "mini_swe_agent": {"evaluate": find_the_patch_only},
}

# Answers that say nothing about the verifier.
REFUSALS = {FailureClass.INVALID_TASK, FailureClass.JUDGE_FAILED, FailureClass.COMPONENT_FAILED}


def alone(name: str) -> bool:
    """Whether a worker verifies without anything but a judge, and a mock for what it calls outside."""
    return name in MOCKS or not registry.find_class("resources", name).needs & {"sandbox", "network"}


# Their verifier is the one of another, which gets the replies.
SAME_VERIFIER = {"polymath": "math_with_judge"}

FOLDERS = sorted(path.parent.name for path in RESOURCES.glob("*/worker.py"))
NAMES = [name for name in FOLDERS if alone(name) and name not in SAME_VERIFIER]


def examples(name: str) -> list[dict[str, Any]]:
    """Return two rows, since each costs as many verdicts as there are replies."""
    text = (RESOURCES / name / "data" / "example.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()[:2]]


def options_of(name: str) -> dict[str, Any]:
    config = load([str(MODEL), str(RESOURCES / name / "config.yaml")], env_yaml=None)
    options = next(one.options for one in config.instances if one.kind == "resources" and one.implementation == name)
    return {**options, **OPTIONS.get(name, {})}


async def says_nothing(_model: str, _params: dict[str, Any]) -> dict[str, Any]:
    return reply("I cannot tell.")


async def outcome(session: Any, row: dict[str, Any], response: dict[str, Any]) -> float | FailureClass:
    """The reward, or why there is none. What a verdict says beside it has to fit into a message."""
    try:
        verdict = await session.verify(row, response)
    except gymq.RolloutError as error:
        return error.failure_class
    encode(Verified(reward=verdict.reward, verdict=verdict.fields))
    reward: float = verdict.reward
    return reward


TAKES_LONG = {
    "ifbench",
    "instruction_following",
    "math_with_judge",
    "reasoning_gym",
    "structeval",
    "structured_outputs",
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.nightly] if name in TAKES_LONG else []) for name in NAMES]
)
async def test_no_reply_breaks_the_verifier(name):
    worker = registry.find_class("resources", name)
    broken, rewarded = [], 0
    try:
        harness = Harness(worker, options_of(name), models=ScriptedModel(says_nothing))
        for member, mock in MOCKS.get(name, {}).items():
            setattr(harness.author, member, mock)
        async with harness as env:
            low, high = env.author.reward_range
            for number, row in enumerate(examples(name), 1):
                for kind, response in RESPONSES.items():
                    found = await outcome(env, row, response)
                    rewarded += isinstance(found, float)
                    if not (found in REFUSALS or (isinstance(found, float) and low <= found <= high)):
                        broken.append(f"row {number}, {kind}: {found}")
    except gymq.OptionsError as error:
        pytest.skip(str(error))
    assert not broken
    assert rewarded > 0
