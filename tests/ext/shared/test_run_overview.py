"""How far a run is, as lists show it: what is stored at that moment, and the statistics of its last checkpoint."""

from gymq.bus import Bus
from gymq.ext.shared.run_overview import run_progress
from gymq.protocol import subjects
from gymq.protocol.messages import Run
from tests.runs.test_runs import failure, profile, put, rollout


async def test_what_came_after_the_checkpoint_is_stored_and_in_no_statistics(bus: Bus, run: str) -> None:
    await put(bus, rollout(run, 0), rollout(run, 1))
    await profile(bus)
    await put(bus, rollout(run, 2), failure(run, 3))
    state = await run_progress(bus, Run(run=run, created_at=7.0, num_rollouts=9, models=["m"]))
    assert (state.num_stored, state.num_rewarded, state.num_failures, state.mean_reward) == (4, 2, 0, 0.5)
    assert (state.run, state.created_at, state.num_rollouts, state.models) == (run, 7.0, 9, ["m"])


async def test_a_checkpoint_of_another_version_does_not_change_the_count(bus: Bus, run: str) -> None:
    await put(bus, rollout(run, 0), rollout(run, 1))
    await bus.js.store(subjects.PROFILE.of(run), b'{"type": "profile.v99"}')
    state = await run_progress(bus, Run(run=run, created_at=7.0))
    assert (state.num_stored, state.num_rewarded, state.mean_reward) == (2, 0, None)
