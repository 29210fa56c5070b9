"""What the recorded cases cannot say: modes, texts that are none, missing models, rows that do not fit."""

from typing import Any

import pytest
from gymq.workers.resources.ifbench import worker as module
from gymq.workers.resources.ifbench.worker import IfBench, reward
from gymq.workers.resources.instruction_following.texts import ModelMissing

import gymq
from gymq.testing import Harness, prompt, reply
from tests.support.processes import kept_processes

__all__ = ["kept_processes"]

REFUSAL = {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}
REASONING = {"type": "reasoning", "id": "r", "summary": [], "content": [{"type": "reasoning_text", "text": "a"}]}


def row(*names: str, **members: Any) -> dict[str, Any]:
    kwargs = members.pop("kwargs", [None] * len(names))
    return {**prompt("?"), "id": 1, "instruction_id_list": list(names), "kwargs": kwargs, "prompt": "?", **members}


async def verdict(content: dict[str, Any], *said: Any, **harness: Any) -> gymq.Verdict:
    async with Harness(IfBench, **harness) as env:
        return await env.verify(content, reply(*said))


@pytest.mark.parametrize(
    ("followed", "mode", "expected"),
    [
        ([True, False], "fraction", 0.5),
        ([True, False], "binary", 0.0),
        ([True, True], "binary", 1.0),
        ([], "binary", 1.0),
        ([], "fraction", 0.0),
    ],
)
def test_the_reward(followed, mode, expected):
    assert reward(followed, mode) == expected


async def test_rules_and_arguments_are_paired_up_to_the_shorter_list(kept_processes):
    content = row("format:no_whitespace", "count:numbers", kwargs=[{}])
    found = await verdict(content, "a", processes=kept_processes)
    assert (found.reward, found.fields["follow_instruction_list"]) == (1.0, [True])


@pytest.mark.parametrize("said", [(" \n",), ("a", REFUSAL), ("a", REASONING), ()])
async def test_without_a_text_there_is_a_false_for_every_name(said):
    found = await verdict(row("format:no_whitespace", "format:no_whitespace", kwargs=[]), *said)
    assert found.reward == found.fields["reward_loose"] == 0.0
    assert found.fields["follow_instruction_list"] == found.fields["follow_instruction_list_loose"] == [False, False]


async def test_a_text_may_be_plain_content(kept_processes):
    said = {"type": "message", "role": "assistant", "content": "a"}
    assert (await verdict(row("format:no_whitespace"), said, processes=kept_processes)).reward == 1.0


async def test_a_missing_model_is_no_verdict(monkeypatch):
    async def computed(self: IfBench, *_: Any) -> None:
        raise ModelMissing("a model of NLTK cannot be read: not found")

    monkeypatch.setattr(module.IfBench, "compute", computed)
    with pytest.raises(gymq.ComponentFailed, match="not found"):
        await verdict(row("words:start_verb"), "Run.")


@pytest.mark.parametrize(
    "members",
    [
        {"grading_mode": "some"},
        {"grading_mode": None},
        {"id": "x"},
        {"prompt": None},
        {"kwargs": None},
        {"kwargs": {}},
        {"instruction_id_list": "x"},
        {"instruction_id_list": [1]},
    ],
)
async def test_a_row_that_does_not_fit_is_refused(members):
    with pytest.raises(gymq.InvalidTask):
        await verdict(row("format:no_whitespace") | members, "a")


def test_at_least_one_verification_runs_at_a_time():
    with pytest.raises(gymq.OptionsError, match="num_processes"):
        IfBench({"num_processes": 0})
