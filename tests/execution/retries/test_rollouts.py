"""Whole rollouts are tried again, the verdict and the calls inside them too, and all of it ends."""

import asyncio

import pytest

import gymq
from gymq.bus import Bus
from gymq.execution.journal import Journal
from gymq.failures import RETRIES, RETRYABLE, RolloutError
from gymq.protocol.messages import Failure, FailureClass, Stage, Unresolved, VerifiedRollout
from tests.support.waiting import DEADLINE_S

from .conftest import Agent, Bench, Change, Failing

HOPELESS = [failure_class for failure_class in FailureClass if failure_class not in RETRYABLE]


def errors(failure_class: FailureClass, count: int, *, retryable: bool | None = None) -> list[BaseException]:
    return [RolloutError(failure_class, f"no {number}", retryable=retryable) for number in range(count)]


@pytest.mark.parametrize("failure_class", sorted(RETRYABLE))
async def test_a_rollout_is_tried_as_often_as_the_table_says(bench: Bench, failure_class: FailureClass) -> None:
    retry = RETRIES[failure_class].rollout
    assert retry is not None
    bench.agent.fail.errors = errors(failure_class, 99)
    outcome = await bench.outcome()
    assert isinstance(outcome, Failure)
    last = retry.tries - 1
    assert (outcome.failure_class, outcome.attempt, outcome.message) == (failure_class, last, f"no {last}")
    assert bench.agent.fail.asked == retry.tries


async def test_a_rollout_that_succeeds_at_the_last_try_has_its_reward(bench: Bench) -> None:
    bench.agent.fail.errors = errors(FailureClass.MODEL_FAILED, 2)
    outcome = await bench.outcome()
    assert isinstance(outcome, VerifiedRollout)
    assert (outcome.reward, outcome.attempt) == (1.0, 2)


@pytest.mark.parametrize("failure_class", HOPELESS)
async def test_what_cannot_succeed_is_tried_once(bench: Bench, failure_class: FailureClass) -> None:
    bench.agent.fail.errors = errors(failure_class, 1)
    outcome = await bench.outcome()
    assert isinstance(outcome, Failure)
    assert (outcome.failure_class, outcome.retryable) == (failure_class, False)
    assert bench.agent.fail.asked == 1


async def test_a_failure_of_the_agents_own_code_is_not_tried_again(bench: Bench) -> None:
    bench.agent.fail.errors = [KeyError("x")]
    assert isinstance(await bench.outcome(), Failure)
    assert bench.agent.fail.asked == 1


async def test_whoever_raises_a_failure_may_call_it_hopeless(bench: Bench) -> None:
    bench.agent.fail.errors = errors(FailureClass.MODEL_FAILED, 99, retryable=False)
    assert isinstance(await bench.outcome(), Failure)
    assert bench.agent.fail.asked == 1


async def test_whoever_raises_a_failure_may_call_it_curable(bench: Bench) -> None:
    bench.agent.fail.errors = errors(FailureClass.AGENT_FAILED, 99, retryable=True)
    assert isinstance(await bench.outcome(), Failure)
    assert bench.agent.fail.asked == 3


async def test_no_try_is_begun_that_could_not_end_before_the_deadline(bench: Bench, change: Change) -> None:
    change("rollout", first_pause_s=3600.0, longest_pause_s=3600.0)
    bench.agent.fail.errors = errors(FailureClass.MODEL_FAILED, 99)
    async with asyncio.timeout(DEADLINE_S):
        outcome = await bench.outcome(timeout_s=1000.0)
    assert isinstance(outcome, Failure)
    assert outcome.failure_class is FailureClass.MODEL_FAILED
    assert bench.agent.fail.asked == 1


class Reconnecting(Agent):
    """Fails five times, each time because the connection was replaced."""

    bus: Bus

    async def converse(self, rollout: gymq.Rollout, session: gymq.Session) -> None:
        await rollout.respond()
        self.fail()
        if self.fail.asked <= 5:
            back = asyncio.Event()
            self.bus.on_reconnect(back.set)
            await self.bus._nc.force_reconnect()
            await back.wait()
            raise RolloutError(FailureClass.MODEL_FAILED, "no")


async def test_what_breaks_while_the_connection_is_replaced_does_not_count(bench: Bench, bus: Bus) -> None:
    bench.agent = Reconnecting(bench.agent.options, name=bench.name)
    bench.agent.fail, bench.agent.bus = Failing(), bus
    outcome = await bench.outcome()
    assert isinstance(outcome, VerifiedRollout)
    assert outcome.attempt == 5


async def test_only_its_own_failures_count_where_another_process_resumes_a_rollout(bench: Bench) -> None:
    await Journal(bench.bus, bench.task(), "earlier").start_attempt(4, 1)
    bench.agent.fail.errors = errors(FailureClass.MODEL_FAILED, 99)
    outcome = await bench.outcome(num_delivered=2)
    assert isinstance(outcome, Failure)
    assert (outcome.attempt, bench.agent.fail.asked) == (5, 2)


async def test_a_verdict_is_asked_for_again_and_the_response_kept(bench: Bench) -> None:
    bench.verifier.fail.errors = [RolloutError(FailureClass.JUDGE_FAILED, "no"), ValueError("no")]
    outcome = await bench.outcome()
    assert isinstance(outcome, VerifiedRollout)
    assert (bench.verifier.fail.asked, bench.model.fail.asked) == (3, 1)


async def test_a_verdict_is_asked_for_thrice(bench: Bench) -> None:
    bench.verifier.fail.errors = errors(FailureClass.COMPONENT_FAILED, 99)
    outcome = await bench.outcome()
    assert isinstance(outcome, Unresolved)
    assert (outcome.failure_class, outcome.message) == (FailureClass.COMPONENT_FAILED, "no 2")
    assert (bench.verifier.fail.asked, bench.model.fail.asked) == (3, 1)


@pytest.mark.parametrize(
    "error",
    [
        RolloutError(FailureClass.INVALID_TASK, "no"),
        RolloutError(FailureClass.JUDGE_FAILED, "no", retryable=False),
    ],
)
async def test_a_verdict_that_there_cannot_be_is_asked_for_once(bench: Bench, error: RolloutError) -> None:
    bench.verifier.fail.errors = [error] * 99
    outcome = await bench.outcome()
    assert isinstance(outcome, Unresolved)
    assert (outcome.failure_class, outcome.retryable) == (error.failure_class, False)
    assert bench.verifier.fail.asked == 1


async def test_a_response_is_kept_when_there_is_no_time_for_another_verdict(bench: Bench, change: Change) -> None:
    change("verdict", first_pause_s=3600.0, longest_pause_s=3600.0)
    bench.verifier.fail.errors = errors(FailureClass.JUDGE_FAILED, 99)
    async with asyncio.timeout(DEADLINE_S):
        outcome = await bench.outcome(timeout_s=1000.0)
    assert isinstance(outcome, Unresolved)
    assert outcome.failure_class is FailureClass.JUDGE_FAILED


async def test_an_agent_waits_for_a_model_that_is_not_there_yet(idle_bench: Bench, change: Change) -> None:
    change("call", budget_s=0.05)
    await idle_bench.serve_verifier()
    working = asyncio.create_task(idle_bench.outcome())
    await asyncio.sleep(0.5)  # several times what a call alone waits
    assert not working.done()
    await idle_bench.serve_model()
    assert isinstance(await working, VerifiedRollout)


async def test_an_agent_looks_for_a_model_only_so_often(idle_bench: Bench, change: Change) -> None:
    change("call", budget_s=0.05)
    change("effect", tries=2)
    await idle_bench.serve_verifier()
    async with asyncio.timeout(DEADLINE_S):
        outcome = await idle_bench.outcome(timeout_s=3600.0)
    assert isinstance(outcome, Failure)
    assert (outcome.failure_class, outcome.stage) == (FailureClass.NO_WORKER, Stage.MODEL)
    assert outcome.attempt == 2
