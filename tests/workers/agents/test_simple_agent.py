"""The loop of the simple agent: model and tools in turn, until a reply calls no tool."""

import asyncio
import json
import math
from array import array

import pytest

from gymq.authoring import OptionsError
from gymq.failures import InvalidTask, RolloutError
from gymq.protocol import subjects
from gymq.protocol.messages import FailureClass, Generate, Seeded, Stage, ToolCall, ToolResult, Verified, Verify
from gymq.protocol.tokens import ContinuedPrompt
from gymq.testing import function_call, reply

from .script import SESSION, Script, agent, rollout, said, weather

STATELESS = [Seeded(session=None, tools=[])]


async def test_a_reply_without_calls_ends_the_conversation() -> None:
    script, simple = Script(said()), agent()
    asked = rollout(script, simple)
    verdict = await simple.run(asked)
    assert script.kinds == ["Seed", "Generate", "Verify"]
    assert verdict.reward == 1.0
    assert asked.response["output"] == said()["output"]


async def test_the_model_reads_what_its_tools_said() -> None:
    script = Script(reply(weather()), said(), tools=[ToolResult(output="rain")])
    simple = agent()
    await simple.run(rollout(script, simple))
    assert script.kinds == ["Seed", "Generate", "ToolCall", "Generate", "Verify"]
    second = script.of(Generate)[1].params["input"]
    assert [item.get("type", "message") for item in second] == ["message", "function_call", "function_call_output"]
    assert second[2]["call_id"] == "call_1"
    assert second[2]["output"] == "rain"


async def test_several_calls_of_a_reply_are_made_in_their_order() -> None:
    script = Script(reply(weather(1, {"city": "Bern"}), weather(2, {"city": "Rome"})), said())
    simple = agent()
    await simple.run(rollout(script, simple))
    calls = script.of(ToolCall)
    assert [json.loads(call.arguments)["city"] for call in calls] == ["Bern", "Rome"]
    assert len({call.number for call in calls}) == 2


async def test_the_verifier_gets_the_row_as_it_was_and_all_that_was_said() -> None:
    row = {"responses_create_params": {"input": "?"}, "answer": 42, "nested": {"a": [1.5, None]}}
    script = Script(reply(weather()), said())
    simple = agent()
    await simple.run(rollout(script, simple, row))
    (request,) = script.of(Verify)
    assert json.loads(request.row) == row
    kinds = [item["type"] for item in request.response["output"]]
    assert kinds == ["function_call", "function_call_output", "message"]


async def test_the_models_parameters_are_passed_on_without_loss() -> None:
    params = {"input": [{"role": "user", "content": "?"}], "temperature": 0.5, "metadata": {"a": "b"}, "top_p": 0.9}
    script, simple = Script(said()), agent()
    await simple.run(rollout(script, simple, {"responses_create_params": params}))
    (request,) = script.of(Generate)
    assert {key: request.params[key] for key in params if key != "input"} == {
        key: value for key, value in params.items() if key != "input"
    }


async def test_requests_go_to_the_instances_that_the_options_name() -> None:
    script, simple = Script(reply(weather()), said()), agent()
    await simple.run(rollout(script, simple))
    assert [subject for subject, _ in script.asked] == [
        subjects.SEED.of("env"),
        subjects.MODEL.of("policy"),
        SESSION,
        subjects.MODEL.of("policy"),
        SESSION,
    ]


async def test_it_stops_after_its_greatest_number_of_model_calls() -> None:
    script, simple = Script(reply(weather())), agent(max_steps=3)
    await simple.run(rollout(script, simple))
    assert len(script.of(Generate)) == 3


@pytest.mark.parametrize("why", [{"reason": "max_output_tokens"}, {"reason": "content_filter"}, {"reason": None}, {}])
async def test_a_reply_that_was_cut_short_ends_the_conversation_and_its_calls_are_not_made(why: dict[str, str]) -> None:
    cut = reply(weather()) | {"incomplete_details": why}
    script, simple = Script(cut), agent()
    await simple.run(rollout(script, simple))
    assert script.kinds == ["Seed", "Generate", "Verify"]


async def test_a_model_that_says_nothing_again_and_again_is_not_asked_for_ever() -> None:
    script, simple = Script(reply()), agent(max_silent_replies=4)
    await simple.run(rollout(script, simple))
    assert len(script.of(Generate)) == 4


@pytest.mark.parametrize("option", [{"max_steps": -1}, {"max_silent_replies": 0}, {"max_silent_replies": -1}])
def test_a_limit_that_no_rollout_could_keep_is_refused(option: dict[str, int]) -> None:
    with pytest.raises(OptionsError, match=next(iter(option))):
        agent(**option)


@pytest.mark.parametrize("arguments", ["", None])
async def test_a_call_without_arguments_runs_the_tool(arguments: str | None) -> None:
    call = function_call("weather", "{}") | {"arguments": arguments}
    script, simple = Script(reply(call), said()), agent()
    await simple.run(rollout(script, simple))
    assert [asked.arguments for asked in script.of(ToolCall)] == ["{}"]


async def test_arguments_that_are_no_json_are_told_to_the_model_and_go_no_further() -> None:
    call = function_call("weather", "{}") | {"arguments": "{broken"}
    script, simple = Script(reply(call), said()), agent()
    asked = rollout(script, simple)
    await simple.run(asked)
    assert script.of(ToolCall) == []
    assert "Invalid tool call arguments" in asked.output[1]["output"]


@pytest.mark.parametrize("name", ["verify", "seed", "seed_session", "close", "aggregate_metrics"])
async def test_a_model_cannot_call_what_is_no_tool(name: str) -> None:
    script, simple = Script(reply(function_call(name, {})), said()), agent()
    asked = rollout(script, simple)
    await simple.run(asked)
    assert script.of(ToolCall) == []
    assert name in asked.output[1]["output"]


async def test_an_error_of_a_tool_is_something_the_model_reads() -> None:
    error = ToolResult(output='{"error": "no such city"}', status=422)
    script, simple = Script(reply(weather()), said(), tools=[error]), agent()
    asked = rollout(script, simple)
    assert (await simple.run(asked)).reward == 1.0
    assert asked.output[1]["output"] == '{"error": "no such city"}'


async def test_the_session_is_closed_when_the_rollout_is_over() -> None:
    script, simple = Script(said()), agent()
    await simple.run(rollout(script, simple))
    assert script.is_closed


async def test_the_session_is_closed_when_the_rollout_fails() -> None:
    script, simple = Script(RolloutError(FailureClass.MODEL_FAILED, "out of order", retryable=False)), agent()
    with pytest.raises(RolloutError, match="out of order") as caught:
        await simple.run(rollout(script, simple))
    assert caught.value.stage is Stage.MODEL
    assert script.is_closed


async def test_a_worker_without_state_needs_no_session_and_is_not_seeded_again() -> None:
    known: dict[str, Seeded] = {}
    first, second, simple = Script(said(), seeded=STATELESS), Script(said()), agent()
    await simple.run(rollout(first, simple, stateless=known))
    await simple.run(rollout(second, simple, stateless=known))
    assert first.kinds == ["Seed", "Generate", "Verify"]
    assert second.kinds == ["Generate", "Verify"]
    assert second.asked[1][0] == subjects.STATELESS.of("env")
    assert second.told == []


async def test_a_worker_that_keeps_state_by_now_is_seeded_at_the_next_attempt() -> None:
    known = {"env": Seeded(session=None, tools=[])}
    lost = RolloutError(FailureClass.SESSION_LOST, "seed a session first")
    script, simple = Script(said(), verified=[lost]), agent()
    with pytest.raises(RolloutError) as caught:
        await simple.run(rollout(script, simple, stateless=known))
    assert caught.value.retryable
    assert known == {}


async def test_a_session_that_can_be_rebuilt_is_rebuilt_with_the_same_calls() -> None:
    replayable = [Seeded(session=SESSION, replayable=True), Seeded(session=subjects.SESSION.of("other", "session"))]
    lost = RolloutError(FailureClass.SESSION_LOST, "the worker is gone")
    script = Script(reply(weather()), said(), seeded=replayable, verified=[lost, Verified(reward=0.5)])
    simple = agent()
    assert (await simple.run(rollout(script, simple))).reward == 0.5
    assert script.kinds == ["Seed", "Generate", "ToolCall", "Generate", "Verify", "Seed", "ToolCall", "Verify"]
    assert script.asked[-1][0] == subjects.SESSION.of("other", "session")


async def test_a_rebuilt_session_that_answers_differently_is_not_trusted() -> None:
    replayable = [Seeded(session=SESSION, replayable=True)]
    lost = RolloutError(FailureClass.SESSION_LOST, "the worker is gone")
    answers = [ToolResult(output="sunny"), ToolResult(output="rain")]
    script = Script(reply(weather()), said(), seeded=replayable, tools=answers, verified=[lost])
    simple = agent()
    with pytest.raises(RolloutError, match="answered weather differently") as caught:
        await simple.run(rollout(script, simple))
    assert caught.value.failure_class is FailureClass.SESSION_LOST


async def test_the_verifiers_further_fields_are_part_of_the_verdict() -> None:
    script, simple = Script(said(), verified=[Verified(reward=0.5, verdict={"why": "half"})]), agent()
    verdict = await simple.run(rollout(script, simple))
    assert (verdict.reward, verdict.fields) == (0.5, {"why": "half"})


async def test_verification_can_be_left_out_and_the_verdict_says_so() -> None:
    script, simple = Script(said()), agent(skip_verification=True, skip_verification_reward=0.25)
    verdict = await simple.run(rollout(script, simple))
    assert script.of(Verify) == []
    assert (verdict.reward, verdict.fields) == (0.25, {"verification_skipped": True})


@pytest.mark.parametrize("reward", [math.nan, math.inf])
def test_a_reward_for_no_verification_that_is_no_number_is_refused(reward: float) -> None:
    with pytest.raises(OptionsError, match="skip_verification_reward"):
        agent(skip_verification=True, skip_verification_reward=reward)


async def test_the_usage_of_all_turns_is_added_up() -> None:
    usage = {
        "input_tokens": 10,
        "output_tokens": 5,
        "total_tokens": 15,
        "input_tokens_details": {"cached_tokens": 1},
        "output_tokens_details": {"reasoning_tokens": 2},
    }
    script, simple = Script(reply(weather()) | {"usage": usage}, said() | {"usage": usage}), agent()
    asked = rollout(script, simple)
    await simple.run(asked)
    assert asked.response["usage"]["total_tokens"] == 30
    assert asked.response["usage"]["output_tokens_details"]["reasoning_tokens"] == 4


async def test_a_reply_that_is_no_response_is_a_failure_of_the_model() -> None:
    script, simple = Script({"no": "response"}), agent()
    with pytest.raises(RolloutError, match="not a Responses object") as caught:
        await simple.run(rollout(script, simple))
    assert (caught.value.failure_class, caught.value.stage) == (FailureClass.MODEL_FAILED, Stage.MODEL)


async def test_calls_get_no_more_time_than_the_rollout_has_left_or_the_options_allow() -> None:
    script, simple = Script(reply(weather()), said()), agent(model_timeout_s=5.0, tool_timeout_s=7.0)
    await simple.run(rollout(script, simple, timeout_s=6.0))
    assert {request.timeout_s for request in script.of(Generate)} == {5.0}
    assert all(5.0 < request.timeout_s <= 6.0 for request in (*script.of(ToolCall), *script.of(Verify)))


async def test_a_rollout_whose_time_is_over_asks_nothing_more() -> None:
    script, simple = Script(said()), agent()
    with pytest.raises(RolloutError) as caught:
        await simple.run(rollout(script, simple, timeout_s=-1.0))
    assert caught.value.failure_class is FailureClass.DEADLINE_EXCEEDED
    assert script.asked == []


@pytest.mark.parametrize(
    ("row", "said_of_it"),
    [
        ({}, "responses_create_params"),
        ({"responses_create_params": 1}, "responses_create_params"),
        ({"responses_create_params": {}}, "input"),
        ({"responses_create_params": {"input": 1}}, "input"),
        ({"responses_create_params": {"input": [{"role": "nobody"}]}}, r"input\[0\]"),
    ],
)
async def test_a_row_that_asks_nothing_is_refused_and_the_field_named(row: dict[str, object], said_of_it: str) -> None:
    with pytest.raises(InvalidTask, match=said_of_it):
        rollout(Script(said()), agent(), row)


@pytest.mark.parametrize("missing", ["model_server", "resources_server"])
async def test_an_agent_without_model_or_resources_names_the_option(missing: str) -> None:
    simple = agent(**{missing: None})
    with pytest.raises(RolloutError, match=f"option `{missing}` is not set"):
        await simple.run(rollout(Script(said()), simple))


async def test_a_cancelled_rollout_without_a_journal_closes_its_session() -> None:
    script, simple = Script(said()), agent()
    working = asyncio.Event()

    async def wait(*_: object) -> None:
        working.set()
        await asyncio.sleep(60)

    simple.converse = wait  # type: ignore[method-assign, assignment]
    running = asyncio.create_task(simple.run(rollout(script, simple)))
    await working.wait()
    running.cancel()
    await asyncio.wait([running])
    assert script.is_closed


async def test_rollouts_that_may_call_tools_are_journalled() -> None:
    tools = [{"type": "function", "name": "weather", "parameters": {"type": "object"}, "strict": False}]
    simple = agent()
    with_tools = rollout(Script(said()), simple, {"responses_create_params": {"input": "?", "tools": tools}})
    assert simple.journals(with_tools)
    without_tools = rollout(Script(said()), simple, stateless={"env": Seeded(session=None, tools=[])})
    assert not simple.journals(without_tools)


@pytest.mark.parametrize("prefix_length", [0, 3, 2**40])
async def test_a_reply_whose_tokens_continue_nothing_is_the_models_failure(prefix_length: int) -> None:
    tokens = {
        "prompt_token_ids": ContinuedPrompt(prefix_length, array("i", [1])),
        "generation_token_ids": array("i", [2]),
        "generation_log_probs": array("f", [-0.5]),
    }
    response = said()
    response["output"][-1] |= tokens
    simple = agent()
    with pytest.raises(RolloutError, match=r"tokens that do not fit: output\[0\].prompt_token_ids") as error:
        await simple.run(rollout(Script(response), simple))
    assert error.value.failure_class is FailureClass.MODEL_FAILED


async def test_the_input_of_a_call_stays_as_it_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.workers.agents.script._copied", lambda request: request)
    script, simple = Script(reply(weather()), said()), agent()
    await simple.run(rollout(script, simple))
    assert [len(request.params["input"]) for request in script.of(Generate)] == [1, 3]
