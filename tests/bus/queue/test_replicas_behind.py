"""Any replica of a stream answers a reader, and one may not have yet what the server has acknowledged."""

import os
from collections.abc import Callable
from typing import Any

import pytest

from gymq.bus import Bus, streams
from gymq.bus.jetstream import JetStream, Stored
from gymq.bus.queue.dead_letters import DeadLetters, dead_letter_failure
from gymq.bus.queue.outcome_store import OutcomeStore
from gymq.bus.queue.tasks import failed_in_queue
from gymq.bus.weights.staleness import Staleness
from gymq.protocol import subjects
from gymq.protocol.codec import encode
from gymq.protocol.messages import FailureClass, Task, VerifiedRollout
from gymq.protocol.replica_messages import Weights
from tests.support.waiting import until

Behind = Callable[[], None]


@pytest.fixture
def behind(monkeypatch: pytest.MonkeyPatch) -> Behind:
    """From when it is called on, each subject seems to be empty to the one who asks first."""
    last = JetStream.last

    def begin() -> None:
        asked: set[str] = set()

        async def answer(js: JetStream, stream: str, subject: str, **options: Any) -> Stored | None:
            if subject in asked:
                return await last(js, stream, subject, **options)
            asked.add(subject)
            return None

        monkeypatch.setattr(JetStream, "last", answer)

    return begin


async def test_what_was_stored_by_a_try_without_an_answer_is_taken_for_stored(
    js: JetStream, run: str, behind: Behind
) -> None:
    subject = subjects.ROLLOUT.of(run, 0, 0)
    await js.store(subject, b"body")
    behind()
    stored = await js.publish_or_last(streams.ROLLOUTS, subject, b"body", last=0, patience_s=20)
    assert stored is not None
    assert stored.data == b"body"


async def test_a_failure_that_was_just_stored_has_its_dead_letter(bus: Bus, run: str, behind: Behind) -> None:
    task = Task(run=run, task_index=0, rollout_index=0, agent="a", row=b"{}", timeout_s=60.0)
    failed = failed_in_queue(task, FailureClass.NO_WORKER, "no agent", retryable=True)
    await OutcomeStore(bus).put(failed, replaces=None, patience_s=20)
    behind()
    await dead_letter_failure(bus, "agent", task, subjects.TASK.of(run, "a"), encode(task))
    assert [entry.letter.reason async for entry in DeadLetters(bus).read(run)] == ["no agent"]


@pytest.mark.parametrize("max_body_bytes", [None, 4096], ids=["a prefix", "parts"])
async def test_an_outcome_is_read_with_what_is_stored_apart_from_it(
    bus: Bus, run: str, behind: Behind, monkeypatch: pytest.MonkeyPatch, max_body_bytes: int | None
) -> None:
    monkeypatch.setattr(bus, "max_body_bytes", max_body_bytes or bus.max_body_bytes)
    outcome = VerifiedRollout(
        run=run,
        task_index=0,
        rollout_index=0,
        num_rollouts=2 if max_body_bytes is None else 1,
        agent="a",
        row=os.urandom(20_000),
        response={"output": []},
        reward=1.0,
    )
    await OutcomeStore(bus).put(outcome, replaces=None, patience_s=20)
    behind()
    assert [found async for _, found in OutcomeStore(bus).read(run)] == [outcome]


async def test_weights_that_were_just_pushed_are_known(bus: Bus, run: str, behind: Behind) -> None:
    staleness = Staleness(bus)
    await staleness.follow(run)
    behind()
    await bus.js.store(subjects.WEIGHTS.of(run), encode(Weights(policy_version="v1", path="x")))
    await until(lambda: staleness._models[run].newest == "v1")
