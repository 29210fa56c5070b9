"""The calls of a rollout: in time, resent, numbered, and ended with it."""

import asyncio
import math

import pytest

import gymq
from gymq.agent import run_to_verdict
from gymq.agent.calls import handed_over
from gymq.errors import BusError
from gymq.failures import CancelReason
from gymq.protocol import subjects
from gymq.protocol.conversation import HeldConversation
from gymq.protocol.messages import (
    Call,
    FailureClass,
    Generate,
    Generated,
    Message,
    Seed,
    Seeded,
    ToolCall,
    ToolResult,
    Verify,
)
from gymq.testing import function_call
from tests.workers.agents.script import OPTIONS, SESSION, Script, agent, rollout, said, weather

GONE = gymq.RolloutError(FailureClass.NO_WORKER, "no worker serves it")
GONE.num_lost = 2


async def test_nothing_is_asked_after_the_deadline() -> None:
    script = Script(said())
    with pytest.raises(gymq.RolloutError, match="has passed") as caught:
        await rollout(script, agent(), timeout_s=-1.0).respond()
    assert (caught.value.failure_class, script.asked) == (FailureClass.DEADLINE_EXCEEDED, [])


async def test_a_call_is_resent_with_the_time_that_is_left_and_the_losses_that_are_known() -> None:
    script = Script(said(), tools=[GONE, ToolResult(output="sunny")])
    async with rollout(script, agent(), num_lost=1).session() as session:
        await session.call(weather())
    (seed,), (first, second) = script.of(Seed), script.of(ToolCall)
    assert (seed.num_lost, first.num_lost, second.num_lost) == (1, 1, 2)
    assert second.timeout_s < first.timeout_s


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (None, False),
        (ValueError("x"), False),
        (BusError("away"), True),
        (asyncio.CancelledError(CancelReason.HANDED_OVER), True),
        (ExceptionGroup("", [ValueError("x"), BusError("away")]), True),
        (ExceptionGroup("", [ValueError("x"), ValueError("y")]), False),
    ],
)
def test_a_rollout_is_handed_over_if_one_of_its_errors_says_so(error: BaseException | None, expected: bool) -> None:
    assert handed_over(error) is expected


@pytest.mark.parametrize("is_handed_over", [False, True])
async def test_calls_that_are_left_learn_whether_another_process_continues(is_handed_over: bool) -> None:
    class Waiting(Script):
        async def call(self, subject: str, request: Call) -> Message:
            await asyncio.Event().wait()
            raise AssertionError

    made = rollout(Waiting(said()), agent())
    asking = asyncio.ensure_future(made.respond())
    await asyncio.sleep(0)
    made.end(handed_over=is_handed_over)
    with pytest.raises(asyncio.CancelledError) as caught:
        await asking
    assert handed_over(caught.value) is is_handed_over


@pytest.mark.parametrize(("most", "expected"), [(1, [1]), (3, [1, 2, 3])])
async def test_steps_are_counted_up_to_the_last(most: int, expected: list[int]) -> None:
    assert list(rollout(Script(said()), agent()).steps(most)) == expected


async def test_a_version_is_named_once_and_tokens_are_added_up() -> None:
    usage = {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}
    answers = [Generated(response=said() | {"usage": usage}, policy_versions=[version]) for version in ("1", "1", "2")]

    class Versions(Script):
        async def call(self, subject: str, request: Call) -> Message:
            return answers.pop(0)

    made = rollout(Versions(said()), agent())
    for _ in range(3):
        await made.respond()
    assert made.policy_versions == ["1", "2"]
    assert made.response["usage"]["total_tokens"] == 15


@pytest.mark.parametrize("name", ["seed_session", "verify", "close"])
async def test_a_model_cannot_call_the_requests_of_a_session(name: str) -> None:
    script = Script(said())
    async with rollout(script, agent()).session() as session:
        answer = await session.call(function_call(name, {}, "call"))
    assert f"there is no tool named '{name}'" in answer["output"]
    assert script.of(ToolCall) == []


async def test_the_same_call_again_has_the_next_number() -> None:
    script = Script(said())
    async with rollout(script, agent()).session() as session:
        for _ in range(2):
            await session.call(weather())
        await session.verify(said())
    first, second = script.of(ToolCall)
    assert second.number == first.number + 1
    assert len(script.of(Verify)) == 1


OTHER = subjects.SESSION.of("other", "session")


@pytest.mark.parametrize("answer", ["sunny", "rainy"])
async def test_a_lost_session_is_rebuilt_with_its_calls_unless_they_are_answered_differently(answer: str) -> None:
    lost = gymq.RolloutError(FailureClass.SESSION_LOST, "the worker is gone")
    script = Script(
        said(),
        seeded=[Seeded(session=SESSION, replayable=True), Seeded(session=OTHER, replayable=True)],
        tools=[ToolResult(output="sunny"), lost, ToolResult(output=answer), ToolResult(output="cold")],
    )
    async with rollout(script, agent()).session() as session:
        await session.call(weather(1))
        if answer == "sunny":
            assert (await session.call(weather(2)))["output"] == "cold"
        else:
            with pytest.raises(gymq.RolloutError, match="answered weather differently"):
                await session.call(weather(2))
    numbers = [(subject == OTHER, request.number) for subject, request in script.asked if isinstance(request, ToolCall)]
    first, second = numbers[0][1], numbers[1][1]
    expected = [(False, first), (False, second), (True, first), (True, second)]
    assert numbers == expected[: 4 if answer == "sunny" else 3]


async def test_what_a_worker_holds_of_the_conversation_is_known_to_the_next_question() -> None:
    seen: list[HeldConversation | None] = []

    class Holding(Script):
        async def call(self, subject: str, request: Call) -> Message:
            assert isinstance(request, Generate)
            conversation = request.params["input"]
            seen.append(conversation.held)
            conversation.held = HeldConversation("policy", "worker", str(len(seen)), [*conversation])
            return Generated(response=said())

    made = rollout(Holding(said()), agent())
    for _ in range(2):
        await made.respond()
    assert [held and held.state for held in seen] == [None, "1"]


@pytest.mark.parametrize("reward", [math.nan, math.inf])
async def test_a_reward_that_is_no_finite_number_fails_the_rollout(reward: float) -> None:
    class Odd(gymq.Agent):
        async def run(self, rollout: gymq.Rollout) -> gymq.Verdict:
            verdict = gymq.Verdict(1.0)
            verdict.reward = reward
            return verdict

    odd = Odd(OPTIONS)
    with pytest.raises(gymq.RolloutError, match="finite reward"):
        await run_to_verdict(odd, rollout(Script(said()), odd))  # type: ignore[arg-type]


NO_REPLY = gymq.RolloutError(FailureClass.MODEL_FAILED, "no reply")


@pytest.mark.parametrize(
    ("errors", "expected"),
    [
        ([NO_REPLY, BusError("away")], BusError),
        ([ValueError("x"), ExceptionGroup("", [NO_REPLY])], gymq.RolloutError),
        ([ValueError("x"), TypeError("y")], ValueError),
    ],
)
async def test_of_several_errors_the_one_that_decides_about_the_attempt_is_raised(
    errors: list[Exception], expected: type[Exception]
) -> None:
    class Group(gymq.Agent):
        async def run(self, rollout: gymq.Rollout) -> gymq.Verdict:
            raise ExceptionGroup("", errors)

    group = Group(OPTIONS)
    with pytest.raises(expected):
        await run_to_verdict(group, rollout(Script(said()), group))  # type: ignore[arg-type]
