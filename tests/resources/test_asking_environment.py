"""AskingEnvironment: what `play` may do, verdicts that are retried, and stored responses that are verified."""

import asyncio
from typing import Any

import pytest
from gymq.workers.agents.answering_agent.example_environment import Sums

import gymq
from gymq import responses
from gymq.execution.loading.contract import InvalidWorker, check_contract
from gymq.protocol.messages import FailureClass
from gymq.testing import Harness, reply

ROW = {"a": 3, "b": 4, "responses_create_params": {"input": []}}
HINT = {"type": "message", "role": "user", "content": "That is wrong. Add up again."}


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({}, r"has no `async def play\(self, row, policy\)`"),
        ({"play": lambda self, row, policy: 1.0}, r"must be `async def play\(self, row, policy\)`"),
    ],
)
def test_a_class_without_its_loop_is_refused(body: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidWorker, match=problem):
        check_contract(type("Env", (gymq.AskingEnvironment,), body))


async def test_only_what_a_call_adds_is_sent() -> None:
    async with Harness(Sums) as env:
        session = await env.session(ROW)
        first = (await session.call("next", {})).output
        second = (await session.call("next", {"reply": {"output": reply("8")["output"]}})).output
    assert '"keep":0' in first
    assert '"keep":2' in second
    assert "3 + 4" not in second


@pytest.mark.parametrize(
    ("calls", "problem"),
    [
        ([{"reply": {"output": []}}], "reply: expected with every request but the first"),
        ([{}, {}], "reply: expected with every request but the first"),
        ([{}, {"reply": {"output": [{"type": "message"}]}}], "reply.output"),
    ],
)
async def test_a_request_out_of_turn_is_refused_and_changes_nothing(calls: list[Any], problem: str) -> None:
    async with Harness(Sums) as env:
        session = await env.session(ROW)
        for arguments in calls[:-1]:
            await session.call("next", arguments)
        refused = await session.call("next", calls[-1])
        assert refused.status in (400, 422)
        assert problem in refused.output
        if len(calls) == 2:
            await session.call("next", {"reply": {"output": reply("7")["output"]}})
            assert (await session.verify(ROW, reply("7"))).reward == 1.0


async def test_a_stored_response_is_verified_by_its_replies() -> None:
    async with Harness(Sums) as env:
        assert (await env.verify(ROW, reply("7"))).reward == 1.0
        assert (await env.verify(ROW, reply("8", HINT, "7"))).reward == 0.5
        assert (await env.verify(ROW, reply("8", HINT, "8"))).reward == 0.0


@pytest.mark.parametrize(
    ("given", "response", "problem"),
    [
        ([], reply("8"), "ends before the environment has finished"),
        ([], reply("7", HINT, "7"), "more replies than were asked for"),
        ([], reply("8", {**HINT, "content": "Wrong."}, "7"), "asks something else by now"),
        ([{"role": "user", "content": "4 + 4?"}], reply("7"), "asks something else by now"),
    ],
)
async def test_a_response_that_is_no_conversation_with_it_has_no_reward(
    given: list[Any], response: dict[str, Any], problem: str
) -> None:
    async with Harness(Sums) as env:
        with pytest.raises(gymq.InvalidTask, match=problem):
            await env.verify({**ROW, "responses_create_params": {"input": given}}, response)


async def test_a_verdict_that_failed_is_given_again_over_the_same_replies() -> None:
    tried = []

    class Judged(gymq.AskingEnvironment[gymq.Row]):
        async def play(self, row: gymq.Row, policy: gymq.Policy) -> float:
            text = responses.output_text(await policy.ask({"input": "Say 1."}))
            tried.append(text)
            if len(tried) == 1:
                raise gymq.JudgeFailed("away")
            return float(text)

    row: dict[str, Any] = {"responses_create_params": {"input": []}}
    async with Harness(Judged) as env:
        session = await env.session(row)
        await session.call("next", {})
        assert '"call":null' in (await session.call("next", {"reply": {"output": reply("1")["output"]}})).output
        with pytest.raises(gymq.RolloutError) as raised:
            await session.verify(row, reply("1"))
        assert raised.value.failure_class is FailureClass.JUDGE_FAILED
        assert (await session.verify(row, reply("1"))).reward == 1.0
    assert tried == ["1", "1"]


async def test_a_stored_response_is_verified_again_from_the_beginning() -> None:
    tried = []
    between = responses.user_message("Say 2.") | {"type": "message"}

    class Judged(gymq.AskingEnvironment[gymq.Row]):
        async def play(self, row: gymq.Row, policy: gymq.Policy) -> float:
            first = await policy.ask({"input": "Say 1."})
            tried.append(responses.output_text(first))
            if len(tried) == 1:
                raise gymq.JudgeFailed("away")
            asked = [responses.user_message("Say 1."), *first["output"], between]
            return float(responses.output_text(await policy.ask({"input": asked})))

    row: dict[str, Any] = {"responses_create_params": {"input": []}}
    stored = reply("1", between, "2")
    async with Harness(Judged) as env:
        session = await env.session(row)
        with pytest.raises(gymq.RolloutError, match="away"):
            await session.verify(row, stored)
        for _ in range(2):
            assert (await session.verify(row, stored)).reward == 2.0
    assert tried == ["1", "1", "1"]


async def test_calls_at_the_same_time_are_answered_one_by_one() -> None:
    class Both(gymq.AskingEnvironment[gymq.Row]):
        async def play(self, row: gymq.Row, policy: gymq.Policy) -> float:
            said = await asyncio.gather(*(policy.ask({"input": str(number)}) for number in range(3)))
            return float("".join(map(responses.output_text, said)))

    row: dict[str, Any] = {"responses_create_params": {"input": []}}
    async with Harness(Both) as env:
        session = await env.session(row)
        await session.call("next", {})
        for text in ("1", "2", "3"):
            await session.call("next", {"reply": {"output": reply(text)["output"]}})
        assert (await session.verify(row, reply("1"))).reward == 123.0


async def test_a_call_that_nobody_waits_for_is_not_made() -> None:
    class Impatient(gymq.AskingEnvironment[gymq.Row]):
        async def play(self, row: gymq.Row, policy: gymq.Policy) -> float:
            given_up = asyncio.create_task(policy.ask({"input": "1?"}))
            await asyncio.sleep(0)
            given_up.cancel()
            return float(responses.output_text(await policy.ask({"input": "2?"})))

    row: dict[str, Any] = {"responses_create_params": {"input": []}}
    async with Harness(Impatient) as env:
        session = await env.session(row)
        assert "2?" in (await session.call("next", {})).output
        await session.call("next", {"reply": {"output": reply("2")["output"]}})
        assert (await session.verify(row, reply("2"))).reward == 2.0
