"""A run's live statistics are those that its outcomes give, whatever happens to whoever computes them."""

import asyncio
from typing import Any

import msgspec
import pytest

from gymq.host import HostSpec
from gymq.profiler import last_profile, read_profile
from gymq.run_profile import add_outcome
from gymq.running import ProfileSnapshot, RunningProfile
from gymq.runs import Runs

from .lab import Lab, row

pytestmark = pytest.mark.asyncio(loop_scope="session")

NUM_TASKS, NUM_ROLLOUTS = 40, 3


async def submit(lab: Lab, run: str) -> None:
    """Rollouts right, wrong and failing, which take between nothing and a second."""
    for rollout_index in range(NUM_ROLLOUTS):
        for task_index in range(NUM_TASKS):
            reward = float((task_index + rollout_index) % 3 == 0)
            script: dict[str, Any] = {"reward": reward, "model_s": task_index / 40}
            if task_index % 10 == 9:
                script["model_nonsense"] = True
            content = row(f"{run} {task_index} {rollout_index}", script=script)
            await lab.submit_task(run, "asker", content, (task_index, rollout_index), num_rollouts=NUM_ROLLOUTS)


async def check_statistics(lab: Lab, run: str) -> None:
    """The live statistics agree with those of the stored outcomes, once all are in."""
    await lab.outcomes(run, NUM_TASKS * NUM_ROLLOUTS)
    profile = RunningProfile()
    outcomes = sorted(await lab.stored(run), key=lambda outcome: (outcome.task_index, outcome.rollout_index))
    for sequence, outcome in enumerate(outcomes, 1):
        add_outcome(profile, sequence, outcome)
    expected = msgspec.to_builtins(profile.snapshot().agents["asker"], str_keys=True)
    found: Any = None
    for _ in range(100):
        checkpoint = await read_profile(lab.js, run)
        if checkpoint is not None:
            snapshot = msgspec.convert(checkpoint.snapshot, ProfileSnapshot, str_keys=True)
            found = msgspec.to_builtins(snapshot.agents["asker"], str_keys=True)
            if (found["rollouts"], found["failures"]) == (expected["rollouts"], expected["failures"]):
                break
        await asyncio.sleep(0.1)
    assert found == approximately(expected)


def approximately(value: Any) -> Any:
    """Equal but for the rounding of sums that were added up in another order."""
    if isinstance(value, dict):
        return {key: approximately(member) for key, member in value.items()}
    if isinstance(value, list):
        return [approximately(element) for element in value]
    return pytest.approx(value, nan_ok=True) if isinstance(value, float) else value


async def test_live_statistics_are_those_of_the_outcomes(lab: Lab, run: str) -> None:
    await submit(lab, run)
    await check_statistics(lab, run)


async def test_a_profiler_that_is_killed_again_and_again_counts_everything_once(lab: Lab, run: str) -> None:
    await submit(lab, run)
    for count in (30, 60, 90):
        await lab.outcomes(run, count)
        restarts = lab.child("services").restarts
        lab.kill("services")
        await lab.until_restarted("services", restarts)
    await check_statistics(lab, run)


async def test_the_server_may_be_killed_while_statistics_are_computed(lab: Lab, run: str) -> None:
    await submit(lab, run)
    for count in (30, 80):
        await lab.outcomes(run, count)
        await lab.kill_server()
    await check_statistics(lab, run)


async def test_two_profilers_at_once_count_everything_once(lab: Lab, run: str) -> None:
    await submit(lab, run)
    second = await lab.start("second_services", HostSpec(lab.cluster.url, "services", services=True, drain_s=2.0))
    try:
        await lab.outcomes(run, 60)
        lab.kill("services")
        await check_statistics(lab, run)
    finally:
        await second.stop()


async def test_the_statistics_of_a_run_go_on_from_its_last_checkpoint(lab: Lab, run: str) -> None:
    assert (await last_profile(lab.js, run))[1] == 0
    await submit(lab, run)
    await check_statistics(lab, run)
    profile, sequence = await last_profile(lab.js, run)
    found = msgspec.to_builtins(profile.snapshot().agents["asker"], str_keys=True)
    checkpoint = await read_profile(lab.js, run)
    assert checkpoint is not None
    assert found == approximately(checkpoint.snapshot["agents"]["asker"])
    assert sequence == await Runs(lab.bus).last_sequence(run)
