"""What the simulated policy promises to those who load a system with it."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import msgspec
import openai.types.responses
import pytest
from gymq.workers.models.simulated_model.filler import tokens
from gymq.workers.models.simulated_model.worker import SimulatedModel

import gymq
from gymq.protocol.tokens import to_json

SOLUTION = [[{"text": "Let me add."}, {"call": {"name": "add", "arguments": {"a": 6, "b": 7}}}], [{"text": "13"}]]
MISTAKE = [[{"text": "12"}]]
TOOL = {
    "type": "function",
    "name": "add",
    "strict": True,
    "parameters": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    },
}


async def model(**options: Any) -> SimulatedModel:
    worker = SimulatedModel(options)
    await worker.start()
    return worker


def params(text: str = "What is 6 + 7?", **members: Any) -> dict[str, Any]:
    return {"input": [{"role": "user", "content": text}], **members}


def scripted(text: str = "What is 6 + 7?", **members: Any) -> dict[str, Any]:
    metadata = {"simulated_solution": json.dumps(SOLUTION), "simulated_mistake": json.dumps(MISTAKE)}
    return params(text, metadata=metadata, **members)


async def ask(worker: SimulatedModel, request: dict[str, Any], session: str = "run/0/0") -> dict[str, Any]:
    return await worker.respond(gymq.ModelRequest(request, session, session, timeout_s=60.0))


def plain(reply: dict[str, Any]) -> Any:
    return msgspec.json.decode(to_json(reply))


def after(request: dict[str, Any], reply: dict[str, Any], *more: dict[str, Any]) -> dict[str, Any]:
    return {**request, "input": [*request["input"], *reply["output"], *more]}


def tool_output(reply: dict[str, Any], text: str = "13") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": reply["output"][-1]["call_id"], "output": text}


def kinds(reply: dict[str, Any]) -> list[str]:
    return [item["type"] for item in reply["output"]]


def text_of(reply: dict[str, Any]) -> str:
    return "".join(part["text"] for item in reply["output"] if item["type"] == "message" for part in item["content"])


async def solved(worker: SimulatedModel, prompt: str, num_rollouts: int) -> int:
    replies = [await ask(worker, scripted(prompt), f"run/0/{index}") for index in range(num_rollouts)]
    return sum(kinds(reply) == ["message", "function_call"] for reply in replies)


async def test_a_solution_is_played_turn_by_turn() -> None:
    worker, request = await model(skill=1.0), scripted()
    first = await ask(worker, request)
    assert kinds(first) == ["message", "function_call"]
    assert json.loads(first["output"][1]["arguments"]) == {"a": 6, "b": 7}
    second = await ask(worker, after(request, first, tool_output(first)))
    assert text_of(second) == "13"


async def test_without_skill_the_mistake_is_played() -> None:
    assert text_of(await ask(await model(skill=0.0), scripted())) == "12"


async def test_a_mistake_need_not_be_given() -> None:
    request = params(metadata={"simulated_solution": json.dumps(SOLUTION)})
    assert text_of(await ask(await model(skill=0.0), request)) == "I do not know."


async def test_past_the_end_of_a_script_there_is_a_text_so_that_a_loop_ends() -> None:
    worker, request = await model(skill=0.0), scripted()
    first = await ask(worker, request)
    again = await ask(worker, after(request, first, {"role": "user", "content": "Sure?"}))
    assert kinds(again) == ["message"]


async def test_a_rollout_does_not_change_its_mind_between_turns() -> None:
    worker = await model(skill=0.5, seed=3)
    for index in range(20):
        request, session = scripted(), f"run/0/{index}"
        first = await ask(worker, request, session)
        if kinds(first) == ["message", "function_call"]:
            second = await ask(worker, after(request, first, tool_output(first)), session)
            assert text_of(second) == "13"


async def test_equal_requests_get_equal_replies_in_any_order_and_process() -> None:
    options = {"seed": 7, "output_tokens": 20, "token_ids": True, "tool_use": 0.5}
    questions = [(scripted(), f"run/0/{index}") for index in range(10)]
    questions += [(params(tools=[TOOL]), f"run/1/{index}") for index in range(10)]
    one, other = await model(**options), await model(**options)
    replies = {session: plain(await ask(one, request, session)) for request, session in questions}
    random.Random(1).shuffle(questions)
    assert {session: plain(await ask(other, request, session)) for request, session in questions} == replies


async def test_another_seed_gives_other_rollouts() -> None:
    chosen = {seed: await _pattern(await model(seed=seed)) for seed in (1, 2)}
    assert chosen[1] != chosen[2]


async def _pattern(worker: SimulatedModel) -> list[str]:
    return [text_of(await ask(worker, scripted(), f"run/0/{index}")) for index in range(64)]


async def test_ids_of_replies_and_items_differ_between_rollouts_and_turns() -> None:
    worker, request = await model(skill=1.0), scripted()
    first = await ask(worker, request)
    replies = [
        first,
        await ask(worker, after(request, first, tool_output(first))),
        await ask(worker, request, "run/0/1"),
    ]
    ids = [reply["id"] for reply in replies] + [item["id"] for reply in replies for item in reply["output"]]
    assert len(set(ids)) == len(ids)


async def test_skill_is_the_share_of_rollouts_that_succeed() -> None:
    # 3000 draws of 0.3: outside 0.25 to 0.35 is six standard deviations away.
    assert 750 < await solved(await model(skill=0.3), "What is 6 + 7?", 3000) < 1050


async def test_without_spread_all_tasks_are_equally_hard() -> None:
    worker = await model(skill=0.5)
    counts = [await solved(worker, f"Task {index}", 400) for index in range(10)]
    assert all(120 < count < 280 for count in counts)


async def test_with_spread_some_tasks_are_easy_and_some_hard_and_the_mean_stays() -> None:
    worker = await model(skill=0.5, skill_spread=0.9)
    counts = [await solved(worker, f"Task {index}", 20) for index in range(200)]
    assert sum(count <= 2 for count in counts) > 40
    assert sum(count >= 18 for count in counts) > 40
    assert 0.35 < sum(counts) / 4000 < 0.65


async def test_the_difficulty_of_a_task_is_the_same_in_every_run() -> None:
    worker = await model(skill=0.5, skill_spread=0.99)
    for task in range(20):
        shares = []
        for run in ("first", "second"):
            replies = [await ask(worker, scripted(f"Task {task}"), f"{run}/{task}/{index}") for index in range(20)]
            shares.append(sum(kinds(reply) == ["message", "function_call"] for reply in replies) / 20)
        assert abs(shares[0] - shares[1]) <= 0.5


async def test_tasks_with_one_prompt_but_other_scripts_are_other_tasks() -> None:
    worker = await model(skill=0.5, skill_spread=0.99)
    shares = []
    for task in range(20):
        metadata = {"simulated_solution": json.dumps([[{"text": f"yes {task}"}]])}
        replies = [await ask(worker, params(metadata=metadata), f"run/{task}/{index}") for index in range(20)]
        shares.append(sum(text_of(reply).startswith("yes") for reply in replies))
    assert min(shares) <= 4
    assert max(shares) >= 16


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        ("not json", "metadata.simulated_solution: JSON is malformed"),
        ("[[{}]]", "either `call` or `text`"),
        ('[[{"text": "a", "call": {"name": "b"}}]]', "either `call` or `text`"),
        ('[[{"say": "a"}]]', "`say`"),
        ("[[]]", "`$[0]`"),
        ("[]", "length >= 1"),
        ('[[{"name": "add"}]]', 'each a list of {"text": ...} or {"call": {"name": ..., "arguments": ...}}'),
        ('{"text": "a"}', "Expected `array`"),
    ],
)
async def test_a_script_that_cannot_be_read_is_a_failure_that_says_where(script: str, sentence: str) -> None:
    with pytest.raises(gymq.RolloutError) as caught:
        await ask(await model(skill=1.0), params(metadata={"simulated_solution": script}))
    assert sentence in caught.value.message
    assert caught.value.failure_class == gymq.FailureClass.MODEL_FAILED
    assert not caught.value.retryable


async def test_a_mistake_without_a_solution_is_a_failure() -> None:
    with pytest.raises(gymq.RolloutError, match="simulated_solution: expected JSON text"):
        await ask(await model(skill=1.0), params(metadata={"simulated_mistake": json.dumps(MISTAKE)}))


async def test_arguments_given_as_text_are_sent_as_they_are() -> None:
    script = json.dumps([[{"call": {"name": "add", "arguments": "{broken"}}]])
    reply = await ask(await model(skill=1.0), params(metadata={"simulated_solution": script}))
    assert reply["output"][0]["arguments"] == "{broken"


async def test_without_a_script_it_answers_with_a_text() -> None:
    reply = await ask(await model(), params(tools=[TOOL]))
    assert kinds(reply) == ["message"]
    assert text_of(reply)


async def test_without_a_script_it_may_call_one_of_the_tools_and_then_answers() -> None:
    worker, request = await model(tool_use=1.0), params(tools=[TOOL])
    first = await ask(worker, request)
    assert kinds(first) == ["function_call"]
    arguments = json.loads(first["output"][0]["arguments"])
    assert set(arguments) == {"a", "b"}
    assert all(isinstance(value, int) for value in arguments.values())
    assert kinds(await ask(worker, after(request, first, tool_output(first)))) == ["message"]


async def test_it_calls_no_tool_where_the_request_forbids_it() -> None:
    reply = await ask(await model(tool_use=1.0), params(tools=[TOOL], tool_choice="none"))
    assert kinds(reply) == ["message"]


async def test_a_tool_whose_schema_is_none_is_a_failure_that_names_it() -> None:
    tool = {**TOOL, "parameters": {"type": "object", "required": ["a"], "properties": {"a": {"$ref": "#/$defs/no"}}}}
    with pytest.raises(gymq.RolloutError, match="tool 'add'"):
        await ask(await model(tool_use=1.0), params(tools=[tool]))


async def test_padding_leaves_the_words_of_the_script_alone() -> None:
    reply = await ask(await model(skill=0.0, output_tokens=100), scripted())
    assert kinds(reply) == ["reasoning", "message"]
    assert text_of(reply) == "12"


async def test_replies_have_the_wanted_number_of_tokens_on_average() -> None:
    worker = await model(output_tokens=200)
    replies = [await ask(worker, params(), f"run/0/{index}") for index in range(2000)]
    mean = sum(reply["usage"]["output_tokens"] for reply in replies) / 2000
    assert 190 < mean < 211


async def test_a_reply_longer_than_allowed_is_cut_and_says_so() -> None:
    worker = await model(output_tokens=500, token_ids=True)
    reply = await ask(worker, params(max_output_tokens=5))
    assert reply["incomplete_details"] == {"reason": "max_output_tokens"}
    assert reply["status"] == "incomplete"
    assert len(reply["output"][-1]["generation_token_ids"]) == reply["usage"]["output_tokens"] == 5


@pytest.mark.parametrize("output_tokens", [0, 50])
async def test_token_ids_of_a_turn_begin_with_all_ids_of_the_turn_before(output_tokens: int) -> None:
    worker, request = await model(skill=1.0, token_ids=True, output_tokens=output_tokens), scripted(tools=[TOOL])
    first = await ask(worker, request)
    news = tool_output(first)
    second = await ask(worker, after(request, plain(first), news))
    before, now = first["output"][-1], second["output"][-1]
    chain = before["prompt_token_ids"] + before["generation_token_ids"]
    assert now["prompt_token_ids"] == chain + tokens(to_json(news))


async def test_usage_counts_the_token_ids_and_every_one_has_a_log_prob() -> None:
    worker, request = await model(skill=1.0, token_ids=True, output_tokens=50), scripted()
    first = await ask(worker, request)
    for reply in (first, await ask(worker, after(request, first, tool_output(first)))):
        last = reply["output"][-1]
        assert reply["usage"]["input_tokens"] == len(last["prompt_token_ids"])
        assert reply["usage"]["output_tokens"] == len(last["generation_token_ids"])
        assert len(last["generation_log_probs"]) == len(last["generation_token_ids"])
        assert all(value <= 0.0 for value in last["generation_log_probs"])


async def test_only_the_last_item_has_token_fields() -> None:
    reply = await ask(await model(skill=1.0, token_ids=True), scripted())
    assert ["prompt_token_ids" in item for item in reply["output"]] == [False, True]


async def test_padding_with_and_without_token_ids_has_the_same_length() -> None:
    usages = []
    for token_ids in (False, True):
        worker = await model(skill=1.0, token_ids=token_ids, output_tokens=50)
        usages.append((await ask(worker, scripted()))["usage"]["output_tokens"])
    assert usages[0] == usages[1]


async def test_failures_are_as_frequent_as_wanted_and_may_be_tried_again() -> None:
    worker = await model(failure_rate=0.25)
    failures = []
    for index in range(2000):
        try:
            await ask(worker, params(), f"run/0/{index}")
        except gymq.RolloutError as error:
            failures.append(error)
    assert 400 < len(failures) < 600
    assert all(error.retryable and error.failure_class == gymq.FailureClass.MODEL_FAILED for error in failures)


async def test_another_attempt_has_another_fate() -> None:
    worker = await model(failure_rate=0.5)
    fates = set()
    for attempt in range(30):
        try:
            await ask(worker, params(), f"run/0/0/{attempt}")
            fates.add("answered")
        except gymq.RolloutError:
            fates.add("failed")
    assert fates == {"answered", "failed"}


async def test_a_hanging_reply_does_not_come_before_the_deadline() -> None:
    worker = await model(hang_rate=1.0)
    asking = asyncio.create_task(worker.respond(gymq.ModelRequest(params(), "s", "s", timeout_s=3600.0)))
    await asyncio.sleep(0.01)
    assert not asking.done()
    asking.cancel()


async def test_a_hanging_reply_ends_with_the_deadline() -> None:
    worker = await model(hang_rate=1.0)
    with pytest.raises(gymq.RolloutError) as caught:
        await worker.respond(gymq.ModelRequest(params(), "s", "s", timeout_s=0.01))
    assert caught.value.failure_class == gymq.FailureClass.DEADLINE_EXCEEDED


async def test_an_empty_reply_is_a_message_without_text() -> None:
    reply = await ask(await model(empty_rate=1.0), scripted())
    assert (kinds(reply), text_of(reply)) == (["message"], "")


@pytest.mark.parametrize("distribution", ["constant", "exponential", "lognormal"])
async def test_latency_has_the_wanted_mean(distribution: str, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr("gymq.workers.models.simulated_model.worker.asyncio.sleep", sleep)
    worker = await model(latency_s=2.0, latency_distribution=distribution)
    for index in range(4000):
        await ask(worker, params(), f"run/0/{index}")
    assert 1.85 < sum(waits) / len(waits) < 2.15
    assert (len(set(waits)) == 1) == (distribution == "constant")


@pytest.mark.parametrize("request_", [params(), scripted(tools=[TOOL], max_output_tokens=1), scripted()])
async def test_replies_are_responses_objects(request_: dict[str, Any]) -> None:
    worker = await model(skill=1.0, output_tokens=10, token_ids=True)
    openai.types.responses.Response.model_validate(plain(await ask(worker, request_)), strict=True)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"skill": 1.5}, "skill"),
        ({"skill_spread": 1.0}, "skill_spread"),
        ({"latency_distribution": "normal"}, "latency_distribution"),
        ({"failure_rate": 0.6, "hang_rate": 0.6}, "more than 1"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(gymq.OptionsError, match=sentence):
        SimulatedModel(options)
