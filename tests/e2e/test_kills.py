"""Any process may be killed at any moment: nothing is lost, nothing is done twice, no reward is wrong."""

import signal

import pytest

from gymq.protocol.messages import VerifiedRollout

from .running_cluster import RunningCluster, row

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def check_each_once(cluster: RunningCluster, run: str, count: int) -> None:
    found = await cluster.outcomes(run, count)
    assert sorted(found) == [(task, 0) for task in range(count)]
    assert {outcome.reward for outcome in found.values() if isinstance(outcome, VerifiedRollout)} == {1.0}
    assert len(await cluster.stored(run)) == count


@pytest.mark.nightly
async def test_tasks_of_a_killed_agent_are_finished_by_another(cluster: RunningCluster, run: str) -> None:
    await cluster.submit(run, "asker", [row(str(number), script={"model_s": 1.0}) for number in range(8)])
    await cluster.until_called(run, 8)
    cluster.kill("agents")
    await check_each_once(cluster, run, 8)


async def test_an_agent_told_to_stop_finishes_what_is_in_flight(cluster: RunningCluster, run: str) -> None:
    restarts = cluster.child("agents").restarts
    await cluster.submit(run, "asker", [row(str(number), script={"model_s": 0.3}) for number in range(8)])
    await cluster.until_called(run, 8)
    cluster.kill("agents", signal.SIGTERM)
    await cluster.until_restarted("agents", restarts)
    assert len(await cluster.stored(run)) == 8
    assert set(cluster.calls(run).values()) == {1}


@pytest.mark.nightly
async def test_what_an_agent_cannot_finish_in_time_is_given_back(cluster: RunningCluster, run: str) -> None:
    await cluster.submit(run, "asker", [row(script={"model_s": 3.0})])
    await cluster.until_called(run)
    cluster.kill("agents", signal.SIGTERM)
    await check_each_once(cluster, run, 1)


@pytest.mark.nightly
async def test_another_agent_continues_in_the_middle_of_a_conversation(cluster: RunningCluster, run: str) -> None:
    script = {"tools": ["add"] * 4, "model_s": 0.4}
    await cluster.submit(run, "adder", [row(expected=4, script=script)])
    await cluster.until_called(run, 3)
    cluster.kill("agents")
    await check_each_once(cluster, run, 1)
    assert cluster.calls(run).total() <= 6  # five turns, and the one that was in flight


async def test_questions_asked_at_once_are_answered_and_recorded(cluster: RunningCluster, run: str) -> None:
    await cluster.submit(run, "odd", [row(str(number), script={"agent": "vote"}) for number in range(4)])
    await check_each_once(cluster, run, 4)
    assert set(cluster.calls(run).values()) == {11}


async def test_another_agent_asks_nothing_twice_that_was_asked_at_once_and_answered(
    cluster: RunningCluster, run: str
) -> None:
    await cluster.submit(run, "odd", [row(script={"agent": "vote", "model_s": 0.5})])
    await cluster.until_called(run, 7)  # the second five were asked, so the first six are recorded
    cluster.kill("agents")
    await check_each_once(cluster, run, 1)
    assert cluster.calls(run).total() <= 16  # eleven, and the five that were in flight


async def test_a_verdict_in_a_killed_process_is_asked_for_again(cluster: RunningCluster, run: str) -> None:
    await cluster.submit(run, "asker", [row(f"{run} {number}", script={"verify_s": 1.0}) for number in range(8)])
    await cluster.until_called(run, 8)
    cluster.kill("resources")
    await check_each_once(cluster, run, 8)
    assert set(cluster.calls(run).values()) == {1}


@pytest.mark.nightly
async def test_a_killed_models_calls_are_made_again(cluster: RunningCluster, run: str) -> None:
    await cluster.submit(run, "asker", [row(str(number), script={"model_s": 1.0}) for number in range(8)])
    await cluster.until_called(run, 8)
    cluster.kill("models")
    await check_each_once(cluster, run, 8)


@pytest.mark.nightly
async def test_a_killed_server_comes_back_and_the_run_continues(cluster: RunningCluster, run: str) -> None:
    rows = [row(f"{run} {number}", script={"model_s": number % 10 / 5, "verify_s": 0.1}) for number in range(100)]
    await cluster.submit(run, "asker", rows)
    await cluster.until_called(run, 60)
    await cluster.kill_server()
    await check_each_once(cluster, run, 100)
