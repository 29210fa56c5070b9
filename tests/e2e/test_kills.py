"""Any process may be killed at any moment: nothing is lost, nothing is done twice, no reward is wrong."""

import signal

import pytest

from gymq.messages import Rollout

from .lab import Lab, row

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def check_each_once(lab: Lab, run: str, count: int) -> None:
    found = await lab.outcomes(run, count)
    assert sorted(found) == [(task, 0) for task in range(count)]
    assert {outcome.reward for outcome in found.values() if isinstance(outcome, Rollout)} == {1.0}
    assert len(await lab.stored(run)) == count


async def test_tasks_of_a_killed_agent_are_finished_by_another(lab: Lab, run: str) -> None:
    await lab.submit(run, "asker", [row(str(number), script={"model_s": 1.0}) for number in range(8)])
    await lab.until_called(run, 8)
    lab.kill("agents")
    await check_each_once(lab, run, 8)


async def test_an_agent_told_to_stop_finishes_what_it_has_in_hand(lab: Lab, run: str) -> None:
    restarts = lab.child("agents").restarts
    await lab.submit(run, "asker", [row(str(number), script={"model_s": 1.0}) for number in range(8)])
    await lab.until_called(run, 8)
    lab.kill("agents", signal.SIGTERM)
    await lab.until_restarted("agents", restarts)
    assert len(await lab.stored(run)) == 8
    assert set(lab.calls(run).values()) == {1}


async def test_what_an_agent_cannot_finish_in_time_is_given_back(lab: Lab, run: str) -> None:
    await lab.submit(run, "asker", [row(script={"model_s": 3.0})])
    await lab.until_called(run)
    lab.kill("agents", signal.SIGTERM)
    await check_each_once(lab, run, 1)


async def test_another_agent_goes_on_in_the_middle_of_a_conversation(lab: Lab, run: str) -> None:
    script = {"tools": ["add"] * 4, "model_s": 0.4}
    await lab.submit(run, "adder", [row(expected=4, script=script)])
    await lab.until_called(run, 3)
    lab.kill("agents")
    await check_each_once(lab, run, 1)
    assert lab.calls(run).total() <= 6  # five turns, and the one that was in flight


async def test_a_verdict_in_a_killed_process_is_asked_for_again(lab: Lab, run: str) -> None:
    await lab.submit(run, "asker", [row(f"{run} {number}", script={"verify_s": 1.0}) for number in range(8)])
    await lab.until_called(run, 8)
    lab.kill("resources")
    await check_each_once(lab, run, 8)
    assert set(lab.calls(run).values()) == {1}


async def test_a_killed_models_calls_are_made_again(lab: Lab, run: str) -> None:
    await lab.submit(run, "asker", [row(str(number), script={"model_s": 1.0}) for number in range(8)])
    await lab.until_called(run, 8)
    lab.kill("models")
    await check_each_once(lab, run, 8)


async def test_a_killed_server_comes_back_and_the_run_goes_on(lab: Lab, run: str) -> None:
    rows = [row(f"{run} {number}", script={"model_s": number % 10 / 5, "verify_s": 0.1}) for number in range(100)]
    await lab.submit(run, "asker", rows)
    await lab.until_called(run, 60)
    await lab.kill_server()
    await check_each_once(lab, run, 100)
