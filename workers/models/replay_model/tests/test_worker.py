"""Replaying gives what was recorded, and nothing else."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from gymq.workers.models.replay_model.worker import ReplayModel

import gymq
from gymq.testing import function_call, prompt, reply

EXAMPLE = Path(__file__).parent.parent / "data" / "example.jsonl"


def row(
    text: str, *output: str | Mapping[str, Any], task: int = 0, rollout: int = 0, **response: Any
) -> dict[str, Any]:
    return {
        **prompt(text),
        "response": {**reply(*output), **response},
        "reward": 1.0,
        "_ng_task_index": task,
        "_ng_rollout_index": rollout,
    }


def output_of(call_id: str, text: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def said(text: str, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": text}


def text_of(response: dict[str, Any]) -> str:
    return "".join(part["text"] for item in response["output"] if "content" in item for part in item["content"])


class Replay:
    """A started worker over rows written to a file."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "recordings.jsonl"
        self.started: list[ReplayModel] = []

    async def __call__(self, *rows: Any) -> ReplayModel:
        lines = [line if isinstance(line, str) else json.dumps(line) for line in rows]
        self._file.write_text("\n".join(lines) + "\n")
        worker = ReplayModel({"recordings": str(self._file)}, name="policy_model")
        await worker.start()
        self.started.append(worker)
        return worker


@pytest.fixture
async def replay(tmp_path: Path) -> AsyncIterator[Replay]:
    made = Replay(tmp_path)
    yield made
    for worker in made.started:
        await worker.stop()


async def ask(
    worker: ReplayModel, *items: Mapping[str, Any], session: str = "run/0/0", **params: Any
) -> dict[str, Any]:
    rollout = "/".join(session.split("/")[:3])
    return await worker.respond(gymq.ModelRequest({"input": list(items), **params}, session, rollout, timeout_s=60.0))


async def refusal(worker: ReplayModel, *items: Mapping[str, Any], **params: Any) -> str:
    with pytest.raises(gymq.RolloutError) as caught:
        await ask(worker, *items, **params)
    assert caught.value.failure_class == gymq.FailureClass.MODEL_FAILED
    assert not caught.value.retryable
    return caught.value.message


async def test_a_recorded_prompt_gets_its_reply(replay: Replay) -> None:
    worker = await replay(row("Capital of France?", "Paris"), row("Capital of Italy?", "Rome"))
    assert text_of(await ask(worker, said("Capital of Italy?"))) == "Rome"


async def test_several_rollouts_of_a_prompt_are_served_by_rollout_index(replay: Replay) -> None:
    # Rows stand in a file in the order in which they were finished.
    worker = await replay(row("Q", "two", rollout=2), row("Q", "zero", rollout=0), row("Q", "one", rollout=1))
    texts = [text_of(await ask(worker, said("Q"), session=f"run/0/{index}")) for index in range(5)]
    assert texts == ["zero", "one", "two", "zero", "one"]


async def test_an_attempt_in_the_session_changes_nothing(replay: Replay) -> None:
    worker = await replay(row("Q", "zero", rollout=0), row("Q", "one", rollout=1))
    assert text_of(await ask(worker, said("Q"), session="run/0/1/7")) == "one"


async def test_a_call_outside_any_rollout_gets_the_first_recording(replay: Replay) -> None:
    worker = await replay(row("Q", "zero", rollout=0), row("Q", "one", rollout=1))
    assert text_of(await ask(worker, said("Q"), session="somebody")) == "zero"


async def test_a_rollout_is_cut_into_its_model_calls(replay: Replay) -> None:
    first, second = function_call("look", {"at": 1}, "c1"), function_call("look", {"at": 2}, "c2")
    output: list[str | Mapping[str, Any]] = [
        "I look.",
        first,
        output_of("c1", "a"),
        second,
        output_of("c2", "b"),
        "Done.",
    ]
    worker = await replay(row("Q", *output))
    one = await ask(worker, said("Q"))
    assert [item["type"] for item in one["output"]] == ["message", "function_call"]
    two = await ask(worker, said("Q"), *one["output"], output_of("c1", "a"))
    assert two["output"] == [second]
    three = await ask(worker, said("Q"), *one["output"], output_of("c1", "a"), *two["output"], output_of("c2", "b"))
    assert text_of(three) == "Done."


async def test_token_ids_end_a_model_call_and_come_along(replay: Replay) -> None:
    thought = {
        "type": "reasoning",
        "id": "r",
        "summary": [],
        "prompt_token_ids": [1],
        "generation_token_ids": [2],
        "generation_log_probs": [-0.5],
    }
    worker = await replay(row("Q", thought, "Answer"))
    one = await ask(worker, said("Q"))
    assert one["output"] == [thought]
    assert text_of(await ask(worker, said("Q"), thought)) == "Answer"


async def test_usage_and_end_of_a_rollout_come_with_its_last_call(replay: Replay) -> None:
    usage = {"input_tokens": 5, "output_tokens": 7, "total_tokens": 12}
    cut: dict[str, Any] = {
        "usage": usage,
        "incomplete_details": {"reason": "max_output_tokens"},
        "status": "incomplete",
    }
    worker = await replay(row("Q", function_call("look", {}), output_of("call_1", "a"), "Do", **cut))
    one = await ask(worker, said("Q"))
    assert (one["usage"], one["incomplete_details"], one["status"]) == (None, None, "completed")
    two = await ask(worker, said("Q"), function_call("look", {}), output_of("call_1", "a"))
    assert (two["usage"], two["incomplete_details"], two["status"]) == tuple(cut.values())


async def test_a_rollout_stays_with_its_recording_while_it_can(replay: Replay) -> None:
    call, result = function_call("look", {}), output_of("call_1", "a")
    rows = [row("Q", call, result, f"end {index}", rollout=index) for index in range(3)]
    worker = await replay(*rows)
    for index in range(3):
        last = await ask(worker, said("Q"), call, result, session=f"run/0/{index}")
        assert text_of(last) == f"end {index}"


async def test_pairs_of_request_and_response_are_recordings_too(replay: Replay) -> None:
    pair = {"request": {"input": [said("Q"), said("A", "assistant"), said("R")]}, "response": reply("B")}
    worker = await replay(pair, {"request": {"input": "S"}, "response": reply("C")})
    assert text_of(await ask(worker, said("Q"), said("A", "assistant"), said("R"))) == "B"
    assert text_of(await ask(worker, said("S"))) == "C"


@pytest.mark.parametrize(
    "item",
    [
        {"type": "message", "role": "user", "content": "Q"},
        {"role": "user", "content": [{"type": "input_text", "text": "Q"}]},
        {"role": "user", "content": "Q", "id": "msg_1", "status": "completed"},
    ],
)
async def test_other_ways_to_write_an_item_are_the_same_item(replay: Replay, item: dict[str, Any]) -> None:
    assert text_of(await ask(await replay(row("Q", "A")), item)) == "A"


async def test_history_without_ids_and_tokens_is_recognised(replay: Replay) -> None:
    worker = await replay(row("Q", function_call("look", {}), output_of("call_1", "a"), "Done"))
    call = {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}"}
    assert text_of(await ask(worker, said("Q"), call, output_of("call_1", "a"))) == "Done"


async def test_an_unknown_prompt_is_refused_by_name(replay: Replay) -> None:
    message = await refusal(await replay(row("Capital of France?", "Paris")), said("Capital of Spain?"))
    assert message.startswith("replay: input[0] ")
    assert "Capital of Spain?" in message
    assert "Capital of France?" in message


async def test_a_tool_that_answers_otherwise_is_refused_and_both_answers_are_named(replay: Replay) -> None:
    worker = await replay(row("Q", function_call("look", {}), output_of("call_1", "sunny"), "Done"))
    message = await refusal(worker, said("Q"), function_call("look", {}), output_of("call_1", "cloudy"))
    assert message.startswith("replay: input[2] ")
    assert "cloudy" in message
    assert "sunny" in message


async def test_a_conversation_longer_than_the_recording_is_refused(replay: Replay) -> None:
    worker = await replay(row("Q", "A"))
    assert "end before it" in await refusal(worker, said("Q"), said("A", "assistant"), said("More"))
    assert "after input[1]" in await refusal(worker, said("Q"), said("A", "assistant"))


async def test_other_instructions_are_another_conversation(replay: Replay) -> None:
    worker = await replay(row("Q", "A"))
    assert "instructions" in await refusal(worker, said("Q"), instructions="Be brief.")


async def test_long_items_are_shortened_in_messages(replay: Replay) -> None:
    assert len(await refusal(await replay(row("Q", "A")), said("x" * 100_000))) < 600


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("{not json", ":2: "),
        ("[]", "Expected `object`"),
        (json.dumps({"response": reply("A")}), "either `responses_create_params` or `request`"),
        (json.dumps({**prompt("Q")}), "`response`"),
        (json.dumps({**prompt("Q"), "response": {"output": []}}), "`id`"),
        (json.dumps({**prompt("Q"), "response": {**reply("A"), "output": [{"type": "x"}]}}), "output[0].type"),
        (json.dumps({"responses_create_params": {"input": [{}]}, "response": reply("A")}), "input[0]"),
    ],
)
async def test_a_line_that_is_no_recording_stops_the_start_and_is_named(
    replay: Replay, line: str, sentence: str
) -> None:
    with pytest.raises(gymq.OptionsError) as caught:
        await replay(row("Q", "A"), line)
    assert "policy_model: recordings: " in str(caught.value)
    assert "recordings.jsonl:2: " in str(caught.value)
    assert sentence in str(caught.value)


async def test_a_missing_file_stops_the_start(tmp_path: Path) -> None:
    worker = ReplayModel({"recordings": [str(tmp_path / "none.jsonl")]})
    with pytest.raises(gymq.OptionsError, match=r"none\.jsonl: No such file"):
        await worker.start()


async def test_several_files_are_read(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).write_text(json.dumps(row(name, f"reply {name}")) + "\n")
    worker = ReplayModel({"recordings": [str(tmp_path / "one"), str(tmp_path / "two")]})
    await worker.start()
    assert text_of(await ask(worker, said("one"))) == "reply one"
    assert text_of(await ask(worker, said("two"))) == "reply two"
    await worker.stop()


async def test_the_example_replays_to_its_own_rows_wherever_gymq_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    worker = ReplayModel({"recordings": "workers/models/replay_model/data/example.jsonl"})
    await worker.start()
    for line in EXAMPLE.read_text().splitlines():
        recorded = json.loads(line)
        expected = recorded["response"]["output"]
        output: list[dict[str, Any]] = []
        session = f"run/{recorded['_ng_task_index']}/{recorded['_ng_rollout_index']}"
        while len(output) < len(expected):
            if expected[len(output)]["type"] == "function_call_output":
                output.append(expected[len(output)])
            items = recorded["responses_create_params"]["input"]
            output += (await ask(worker, *items, *output, session=session))["output"]
        assert output == expected
    await worker.stop()
