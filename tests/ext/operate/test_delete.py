"""`gymq delete`: what is stored of a run is gone, and nothing of another one."""

import asyncio

import pytest

from gymq.bus import Bus
from gymq.bus.queue.outcome_store import OutcomeStore
from gymq.protocol import subjects
from gymq.protocol.codec import encode
from gymq.protocol.messages import Run, Task, VerifiedRollout
from gymq.runs.stored_runs import Runs
from tests.cli.conftest import Command


async def _store(url: str, run: str, *, queued: bool) -> None:
    bus = await Bus.connect(url, role="test", name="store")
    done = VerifiedRollout(
        run=run, task_index=0, rollout_index=0, agent="a", row=b"{}", response={"output": []}, reward=1.0
    )
    await OutcomeStore(bus).put(done, replaces=None, patience_s=10.0)
    await bus.js.store(subjects.RUN.of(run), encode(Run(run=run, created_at=1.0, num_rollouts=1)))
    if queued:
        task = Task(run=run, task_index=0, rollout_index=1, agent="a", row=b"{}", timeout_s=60.0)
        await bus.js.store(subjects.TASK.of(run, "a"), encode(task))
    await bus.close()


async def _stored(url: str, run: str) -> tuple[int, bool]:
    bus = await Bus.connect(url, role="test", name="stored")
    found = await Runs(bus).num_stored(run), await Runs(bus).record(run) is not None
    await bus.close()
    return found


@pytest.fixture
def url(shared_url: str, gymq: Command, monkeypatch: pytest.MonkeyPatch) -> str:
    """Of the server that `gymq` asks."""
    monkeypatch.setenv("GYMQ_NATS", shared_url)
    return shared_url


def test_a_run_is_deleted_and_another_one_stays(gymq, url):
    for run in ("goes", "stays"):
        asyncio.run(_store(url, run, queued=False))
    deleted = gymq("delete", "--run", "goes")
    assert deleted.status == 0
    assert "run goes is deleted from the store, with 1 outcome; files of results stay" in deleted.out
    assert asyncio.run(_stored(url, "goes")) == (0, False)
    assert asyncio.run(_stored(url, "stays")) == (1, True)


def test_a_run_that_is_in_progress_is_refused(gymq, url):
    asyncio.run(_store(url, "goes_on", queued=True))
    refused = gymq("delete", "--run", "goes_on")
    assert refused.status == 2
    assert "gymq cancel --run goes_on" in refused.err
    assert asyncio.run(_stored(url, "goes_on")) == (1, True)


def test_a_run_that_is_not_there_is_told(gymq, url):
    refused = gymq("delete", "--run", "nowhere")
    assert refused.status == 2
    assert "run 'nowhere' not found" in refused.err
