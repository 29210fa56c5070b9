"""A resources case notices every way in which a worker can be wrong, shown on a small worker with all the parts."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

import gymq
from gymq.authoring import Reference, WorkerOptions
from gymq.failures import ComponentFailed, ToolError

from .cases import ResourcesCase
from .comparison import Mismatch
from .scripted import ScriptedComponents
from .suites import resources as suite
from .suites.resources import check_resources


class Row(gymq.Row):
    start: int


class Adder(gymq.Resources[Row, list[int]]):
    """Adds up; the reward is the sum, judged if asked to."""

    class Options(WorkerOptions):
        judge_model_server: Reference
        judge_responses_create_params: dict[str, Any]
        api_key: str
        times: int = 0
        table: str = ""
        data_dir: str = ""

    async def open(self, row: Row) -> list[int]:
        return [row.start]

    async def open_unseeded(self) -> list[int]:
        return [0]

    @gymq.tool
    def add(self, state: list[int], amount: int) -> dict[str, int]:
        if amount == 13:
            raise RuntimeError("unlucky")
        if amount == 14:
            raise ToolError(500, "unlucky too")
        state[0] += amount
        return {"sum": state[0], "amount": amount}

    @gymq.tool
    def describe(self, state: list[int]) -> str:
        return f"the sum is {state[0]}"

    @gymq.tool
    def fetch(self, state: list[int], url: str) -> str:
        return str(self.lookup(url)["text"])

    def lookup(self, url: str) -> dict[str, Any]:
        raise ComponentFailed("there is no network")

    async def verify(self, request: gymq.VerifyRequest[Row, list[int]]) -> gymq.Verdict:
        state = request.state
        evaluations = []
        for number in range(self.options.times):
            message = {
                "role": "user",
                "content": [{"type": "input_text", "text": f"judge {number}: {request.reply_text}"}],
            }
            params = {**self.options.judge_responses_create_params, "input": [message], "metadata": {"n": str(number)}}
            answer = await self.ask(self.options.judge_model_server.name, params)
            evaluations.append({"verdict_label": answer["output"][0]["content"][0]["text"]})
        reward = state[0] if state else -1
        return gymq.Verdict(reward, judge_evaluations=evaluations, data_dir=self.options.data_dir, details={"n": 1})


CONTENT = [{"type": "output_text", "text": "hi", "annotations": []}]
RESPONSE = {"output": [{"type": "message", "role": "assistant", "content": CONTENT}]}
ADD_2 = {"name": "add", "arguments": {"amount": 2}, "result": {"sum": 7}}


def case(**members: Any) -> ResourcesCase:
    given = {
        "id": "adder-s01",
        "server": "adder",
        "config": {},
        "row": {"responses_create_params": {"input": "q"}, "start": 5},
        "response": RESPONSE,
        "expect": {"reward": 5.0},
        "source": "spec",
        "note": "n",
    }
    return msgspec.convert(given | members, ResourcesCase)


async def agrees(**members: Any) -> None:
    await check_resources(Adder, case(**members), Path("/cases"))


async def differs(text: str, **members: Any) -> None:
    with pytest.raises(Mismatch) as caught:
        await check_resources(Adder, case(**members), Path("/cases"))
    assert text in str(caught.value)


async def test_the_reward_is_compared():
    await agrees()
    await differs("reward: expected 6", expect={"reward": 6})


async def test_fields_of_verdict_row_and_response_belong_to_the_answer():
    await agrees(expect={"start": 5, "details.n": 1, "response.output": RESPONSE["output"], "judge_evaluations": []})
    await differs("details.m", expect={"details.m": 1})
    await differs("extracted: missing", expect={"extracted": None})


async def test_options_are_checked_and_paths_are_relative_to_the_cases():
    await agrees(config={"data_dir": "fixtures/x"}, expect={"data_dir": "/cases/fixtures/x"})
    await differs("refuses the configuration", config={"time": 1})


async def test_tool_results_are_compared_and_change_the_session_that_is_verified():
    await agrees(tool_calls=[ADD_2], expect={"reward": 7})
    await differs("tool_calls[0].sum: expected 8, got 7", tool_calls=[ADD_2 | {"result": {"sum": 8}}])
    await differs("reward: expected 5, got 7", tool_calls=[ADD_2], expect={"reward": 5})


async def test_any_tool_result_may_be_accepted():
    await agrees(tool_calls=[ADD_2 | {"result": "*"}], expect={"reward": 7})


async def test_a_tool_may_answer_with_plain_text():
    await agrees(tool_calls=[{"name": "describe", "arguments": {}, "result": "the sum is 5"}])
    await differs("the sum is 6", tool_calls=[{"name": "describe", "arguments": {}, "result": "the sum is 6"}])


@pytest.mark.parametrize(
    ("name", "arguments", "status"),
    [("add", {"amount": "x"}, 422), ("add", {}, 422), ("ad", {}, 404), ("add", {"amount": 13}, 500)],
)
async def test_refused_tool_calls_are_compared_by_status(name, arguments, status):
    call = {"name": name, "arguments": arguments}
    await agrees(tool_calls=[call | {"result": {"error": {"status": status}}}])
    await differs(f"got {status}", tool_calls=[call | {"result": {"error": {"status": 400}}}])
    await differs(f"got the error {status}", tool_calls=[call | {"result": {"sum": 5}}])


async def test_an_answer_where_a_tool_error_is_due_differs():
    await differs("expected the error 422", tool_calls=[ADD_2 | {"result": {"error": {"status": 422}}}])


async def test_the_text_of_a_tool_error_is_compared_when_given():
    call = {"name": "add", "arguments": {"amount": 14}}
    await agrees(tool_calls=[call | {"result": {"error": {"status": 500, "text": "unlucky too"}}}])
    await differs("text", tool_calls=[call | {"result": {"error": {"status": 500, "text": "unlucky"}}}])


async def test_an_object_with_an_error_text_is_an_ordinary_result():
    await differs(
        "got the error 500", tool_calls=[ADD_2 | {"arguments": {"amount": 13}, "result": {"error": "unlucky"}}]
    )


async def test_other_sessions_are_separate_and_unseeded():
    other = ADD_2 | {"session": "other", "result": {"sum": 2}}
    await agrees(tool_calls=[ADD_2, other], expect={"reward": 7})


async def test_other_sessions_can_be_seeded_by_a_call():
    row = {"responses_create_params": {"input": "q"}, "start": 50}
    seed = {"name": "seed_session", "arguments": row, "session": "other", "result": {}}
    bad_seed = seed | {"arguments": row | {"start": "x"}, "result": {"error": {"status": 422}}}
    await agrees(tool_calls=[bad_seed, seed, ADD_2 | {"session": "other", "result": {"sum": 52}}])
    await differs("got the error 422", tool_calls=[bad_seed | {"result": {}}])


async def test_the_main_session_may_stay_unseeded():
    await agrees(seed=False, tool_calls=[ADD_2 | {"result": {"sum": 2}}], expect={"reward": 2})


async def test_seeding_must_be_refused_when_the_case_says_so_and_only_then():
    bad_row = {"responses_create_params": {"input": "q"}, "start": "x"}
    tool = ADD_2 | {"result": {"sum": 2}}
    await agrees(row=bad_row, response=None, tool_calls=[tool], expect={"seed": "invalid_request"})
    await differs("seed: refused", row=bad_row, response=None, tool_calls=[tool], expect={})
    await differs("seed: expected invalid_request", expect={"seed": "invalid_request", "reward": 5})


async def test_a_row_that_does_not_fit_must_not_be_scored():
    await agrees(row={"responses_create_params": {"input": "q"}}, expect={"error": "invalid_request"})
    await differs("expected invalid_request, but it was answered", expect={"error": "invalid_request"})
    await differs("expected a verdict, got invalid_task", row={"responses_create_params": {"input": "q"}})


async def test_judge_replies_are_used_in_order_and_calls_are_compared():
    members = {"config": {"times": 2}, "judge_replies": ["A", {"output": [assistant("B")]}]}
    expect = {"verdicts": ["A", "B"], "judge_calls": 2, "judge_prompts": ["judge 0: hi", "judge 1: hi"]}
    await agrees(**members, expect=expect)
    await differs("judge_evaluations[0]", **members, expect={"verdicts": ["B", "A"]})
    await differs("judge_evaluations", **members, expect={"verdicts": ["A"]})
    await differs("judge_calls", **members, expect={"judge_calls": 1})
    await differs("judge_prompts", **members, expect={"judge_prompts": ["judge 0: hi"]})


async def test_left_over_judge_replies_are_no_difference():
    await agrees(config={"times": 1}, judge_replies=["A", "B"])


async def test_a_judge_call_without_a_reply_differs_even_where_a_failing_judge_is_expected():
    await differs("1 of 1 judge calls", config={"times": 1}, expect={"error": "judge_failed"})


@pytest.mark.parametrize("reply", [{"raise": "refused"}, {"status": 500, "body": "down"}, {"status": 200, "body": "x"}])
async def test_a_failing_judge_is_no_verdict(reply):
    await agrees(config={"times": 1}, judge_replies=[reply], expect={"error": "judge_failed"})
    await differs("got judge_failed", config={"times": 1}, judge_replies=[reply])
    await differs("got judge_failed", config={"times": 1}, judge_replies=[reply], expect={"error": "component_failed"})


async def test_conditional_judge_replies_go_to_the_calls_they_agree_with():
    replies = [
        {"when": {"contains": ["judge 1", "hi"]}, "reply": "B"},
        {"when": {"n": "0"}, "reply": "A"},
    ]
    await agrees(config={"times": 2}, judge_replies=replies, expect={"verdicts": ["A", "B"]})
    await differs("have no scripted reply", config={"times": 2}, judge_replies=replies[:1])


async def test_a_group_is_compared_in_the_order_of_its_responses():
    group = {"response": None, "responses": [RESPONSE, RESPONSE]}
    await agrees(**group, expect={"rewards": [5.0, 5.0]})
    await differs("rewards[1]: expected 4.0", **group, expect={"rewards": [5.0, 4.0]})
    await differs("verify[1]", **group, expect={"error": "judge_failed"})


async def test_a_failing_member_of_a_group_differs():
    members = {"config": {"times": 1}, "judge_replies": ["A", {"raise": "down"}]}
    await differs("judge_failed", **members, response=None, responses=[RESPONSE, RESPONSE], expect={"rewards": [5, 5]})


async def test_scripted_components_need_a_mock():
    with pytest.raises(LookupError, match=r"components/adder\.py"):
        await agrees(component_replies=[{"component": "web", "text": "x"}])


class WebMock:
    @staticmethod
    def install(author: Adder, components: ScriptedComponents) -> None:
        author.lookup = lambda url: components.next("web", {"url": url}, ComponentFailed)  # type: ignore[method-assign]


async def test_components_answer_from_the_script_and_their_calls_are_compared(monkeypatch):
    monkeypatch.setattr(suite, "_mock", lambda name: WebMock)
    fetch = {"name": "fetch", "arguments": {"url": "u"}, "result": "page"}
    members = {"tool_calls": [fetch], "component_replies": [{"component": "web", "text": "page"}]}
    await agrees(**members, expect={"component_calls": [{"url": "u"}]})
    await differs("component_calls[0].url", **members, expect={"component_calls": [{"url": "v"}]})
    await differs("component_calls: expected 0 elements", **members, expect={"component_calls": []})


async def test_a_component_call_without_a_reply_differs(monkeypatch):
    monkeypatch.setattr(suite, "_mock", lambda name: WebMock)
    await differs("web has no scripted reply", tool_calls=[{"name": "fetch", "arguments": {"url": "u"}, "result": "*"}])


async def test_a_failure_that_no_case_can_expect_differs():
    class Broken(Adder):
        async def verify(self, request: gymq.VerifyRequest[Row]) -> gymq.Verdict:
            raise KeyError("output")

    with pytest.raises(Mismatch, match="verifier_failed"):
        await check_resources(Broken, case(expect={"error": "component_failed"}), Path("/cases"))


def assistant(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
