"""Runs as data sets that trainers read."""

import json
from pathlib import Path
from typing import Any

import pytest

from gymq.errors import UsageError
from gymq.ext.formats.command import export
from gymq.ext.formats.training_sets import MAX_WAITING, TrainingSet, TrainingSetFile
from gymq.protocol.messages import Outcome
from gymq.testing import function_call, reply
from tests.support.stored import Stored, failure, place, rollout, world

__all__ = ["place", "world"]

SPELL = {"type": "function", "name": "spell", "parameters": {"type": "object"}, "strict": False}


def written(tmp_path: Path, form: TrainingSet, *outcomes: Outcome, **options: Any) -> tuple[list[Any], TrainingSetFile]:
    with TrainingSetFile(tmp_path / "set.jsonl", form, **options) as file:
        for outcome in outcomes:
            file.add(outcome)
    return [json.loads(line) for line in (tmp_path / "set.jsonl").read_text().splitlines()], file


def test_a_rollout_that_passes_is_a_conversation(tmp_path: Path) -> None:
    params = {"input": "Spell abc.", "instructions": "Be brief.", "tools": [SPELL]}
    response = reply(function_call("spell", {"word": "abc"}, call_id="c1"), "a-b-c")
    output = response["output"]
    output.insert(1, {"type": "function_call_output", "call_id": "c1", "output": "a, b, c"})
    good = rollout("r", 0, response=response, row={"responses_create_params": params})
    (example,), file = written(tmp_path, "sft", good, rollout("r", 0, 1, reward=0.5), failure("r", 1))
    assert [message["role"] for message in example["messages"]] == ["system", "user", "assistant", "tool", "assistant"]
    assert [message["content"] for message in example["messages"]] == [
        "Be brief.",
        "Spell abc.",
        None,
        "a, b, c",
        "a-b-c",
    ]
    (call,) = example["messages"][2]["tool_calls"]
    assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == ("spell", {"word": "abc"})
    assert example["tools"] == [{"type": "function", "function": {"name": "spell", "parameters": {"type": "object"}}}]
    assert (file.num_written, file.num_left_out) == (1, 0)


def test_the_smallest_reward_that_passes_can_be_set(tmp_path: Path) -> None:
    examples, _ = written(tmp_path, "sft", rollout("r", 0, reward=0.5), rollout("r", 1, reward=0.4), min_reward=0.5)
    assert [example["messages"][0]["content"] for example in examples] == ["question 0"]


def test_what_is_masked_or_has_no_chat_form_is_left_out(tmp_path: Path) -> None:
    foreign = rollout("r", 1, response=reply("x") | {"output": [{"type": "web_search_call", "id": "w"}]})
    broken = rollout("r", 2)
    broken.row = b"no row"
    masked = rollout("r", 0, verdict={"mask_sample": True})
    examples, file = written(
        tmp_path, "sft", masked, foreign, broken, rollout("r", 3, response=reply() | {"output": []})
    )
    assert (examples, file.num_left_out) == ([], 4)


def test_what_trainers_mask_or_take_for_a_failure_is_left_out(tmp_path: Path) -> None:
    nested = rollout("r", 0, verdict={"instance_config": {"mask_sample": True}})
    failed = rollout("r", 0, 1, reward=0.0, verdict={"_ng_failure_class": "verifier_failed"})
    examples, file = written(tmp_path, "dpo", nested, failed, rollout("r", 0, 2), rollout("r", 0, 3, reward=0.0))
    assert (len(examples), file.num_left_out) == (1, 2)


def test_pairs_are_of_one_task_and_use_a_rollout_once(tmp_path: Path) -> None:
    outcomes = [
        rollout("r", 0, 0, text="bad 0", reward=0.0),
        rollout("r", 1, 0, text="good 1"),
        rollout("r", 0, 1, text="bad 1", reward=0.0),
        rollout("r", 0, 2, text="good 0"),
        rollout("r", 1, 1, text="good 2"),
        rollout("r", 0, 3, text="good 3"),
        rollout("r", 0, 4, text="good 4"),
    ]
    examples, _ = written(tmp_path, "dpo", *outcomes)
    found = [(each["prompt"][0]["content"], each["chosen"], each["rejected"]) for each in examples]
    assert [(prompt, chosen[0]["content"], rejected[0]["content"]) for prompt, chosen, rejected in found] == [
        ("question 0", "good 0", "bad 0"),
        ("question 0", "good 3", "bad 1"),
    ]


def test_few_of_a_task_wait_for_their_counterpart(tmp_path: Path) -> None:
    same = [rollout("r", 0, index, reward=0.0) for index in range(3 * MAX_WAITING)]
    others = [rollout("r", 0, 3 * MAX_WAITING + index) for index in range(3 * MAX_WAITING)]
    examples, _ = written(tmp_path, "dpo", *same, *others)
    assert len(examples) == MAX_WAITING


async def test_the_command_writes_a_stored_run(
    place: Stored, run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from gymq.ext.formats.exporting import export_training_set

    await place.store(rollout(run, 0), rollout(run, 0, 1, reward=0.0), rollout(run, 1, verdict={"mask_sample": True}))
    assert await export_training_set(run, tmp_path / "dpo.jsonl", place.world.url, "dpo", 1.0) == 0
    assert len((tmp_path / "dpo.jsonl").read_text().splitlines()) == 1
    printed = capsys.readouterr()
    assert f"1 example of 3 outcomes of {run}" in printed.out
    assert "1 rollout left out: masked or without a chat form" in printed.err


async def test_where_nothing_passes_it_says_why_the_set_is_empty(
    place: Stored, run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from gymq.ext.formats.exporting import export_training_set

    await place.store(rollout(run, 0, reward=0.5), rollout(run, 0, 1, reward=0.0), failure(run, 1))
    assert await export_training_set(run, tmp_path / "sft.jsonl", place.world.url, "sft", 1.0) == 0
    assert capsys.readouterr().err == (
        "gymq: 0 of 2 rewards at 1 or more; an example needs one, and --min-reward changes the limit\n"
    )


def test_settings_of_the_request_that_chat_lacks_are_not_spoken_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gymq.responses.errors._reported", set())
    params = {"input": "Name a gas.", "truncation": "auto", "tool_choice": "required", "tools": []}
    examples, _ = written(tmp_path, "sft", rollout("r", 0, row={"responses_create_params": params}))
    assert (len(examples), caplog.messages) == (1, [])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sft": True, "dpo": True, "output": Path("x.jsonl")}, "not both"),
        ({"sft": True, "output": Path("x.parquet")}, r"x\.parquet: with --sft the name must end in \.jsonl"),
        ({"dpo": True, "wandb": "p"}, r"need --output FILE\.jsonl"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        export(run="r", **options)
