"""The list of runs, of what is stored."""

import msgspec

from gymq.bus import Bus
from gymq.bus.queue.outcome_store import OutcomeStore
from gymq.execution.services.profiler import Profiler
from gymq.ext.viewer.rollout_list import row as in_the_list
from gymq.ext.viewer.rollout_view import stored_view
from gymq.ext.viewer.run_list import RunList
from gymq.ext.viewer.run_states import RunState
from gymq.protocol import subjects
from gymq.protocol.codec import encode
from gymq.protocol.messages import Run

from .conftest import rollout


async def test_a_run_that_is_profiled_later_ended_when_its_rollouts_did(own_bus: Bus, run: str) -> None:
    await own_bus.js.store(subjects.RUN.of(run), encode(Run(run=run, created_at=1e9, num_rollouts=2)))
    ended = {"started_at": 1e9 + 5.0, "duration_s": 3.0}
    outcome = msgspec.structs.replace(rollout(run, 0), **ended)
    assert await OutcomeStore(own_bus).put(outcome, replaces=None, patience_s=30.0)
    await Profiler(own_bus)._read_new()
    (row,) = (await RunList(own_bus, has_workers=False).page(0, "", "started", is_descending=True)).runs
    assert (row.duration_s, row.state) == (8.0, RunState.INTERRUPTED)


async def test_a_rollout_is_shown_with_the_attempts_of_its_row_and_its_task() -> None:
    outcome = rollout("r", 0, row={"_ng_attempt_index": 3}, attempt=2)
    assert stored_view(outcome)["attempt"] == in_the_list(0, outcome).attempt == 5
