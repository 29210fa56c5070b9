"""The queue as a client sees it: each task once, what is queued, outcomes as they are stored, cancelling."""

import asyncio
from typing import Any

import pytest

from gymq.bus import Bus, streams
from gymq.bus.jetstream import JetStream
from gymq.bus.queue import cancel
from gymq.bus.queue.cancel import Cancellations
from gymq.bus.queue.client import QueueClient
from gymq.protocol import subjects
from gymq.protocol.codec import Decoder
from gymq.protocol.messages import Failure, Run, Task, VerifiedRollout
from gymq.protocol.subjects import RolloutId
from tests.support.waiting import until


@pytest.fixture
def queue(bus: Bus) -> QueueClient:
    return QueueClient(bus)


@pytest.fixture
def js(bus: Bus) -> JetStream:
    return bus.js


def task(run: str, task_index: int = 0, **members: Any) -> Task:
    return Task(run=run, task_index=task_index, rollout_index=0, agent="a", row=b"{}", timeout_s=60.0, **members)


def rollout(run: str, task_index: int = 0) -> VerifiedRollout:
    return VerifiedRollout(
        run=run, task_index=task_index, rollout_index=0, agent="a", row=b"{}", response={"output": []}, reward=1.0
    )


async def test_a_task_is_queued_once_for_each_submitter_and_failure_to_replace(bus: Bus, run: str) -> None:
    first, second = QueueClient(bus), QueueClient(bus, submitter="second")
    for _ in range(2):
        await first.submit(task(run))
        await first.submit(task(run, replaces=7))
        await second.submit(task(run))
        await QueueClient(bus, submitter="second").submit(task(run))
    assert [found.replaces for _, found in [one async for one in first.queued(run)]] == [None, 7, None]


async def test_a_run_that_was_deleted_is_opened_again_and_takes_the_same_tasks_again(
    bus: Bus, js: JetStream, run: str
) -> None:
    queue = QueueClient(bus, submitter="intake")
    for _ in range(2):
        for client in (queue, QueueClient(bus, submitter="intake")):
            await client.open_run(run)
            await client.submit(task(run))
        assert [found.task_index for _, found in [one async for one in queue.queued(run)]] == [0]
        assert await js.last(streams.RUNS, subjects.RUN.of(run)) is not None
        await streams.delete_run(js, run)


async def test_urgent_tasks_are_queued_too_and_unreadable_ones_left_out(
    queue: QueueClient, js: JetStream, run: str
) -> None:
    await queue.submit(task(run, 0))
    await queue.submit(task(run, 1), urgent=True)
    await js.store(subjects.TASK.of(run, "a"), b"not a task")
    assert [found.task_index for _, found in [one async for one in queue.queued(run)]] == [0, 1]
    assert await queue.num_queued(run) == 3


async def test_the_first_record_of_a_run_is_kept(bus: Bus, queue: QueueClient, js: JetStream, run: str) -> None:
    async def created_at() -> float:
        stored = await js.last(streams.RUNS, subjects.RUN.of(run))
        assert stored is not None
        record: Run = Decoder(Run)(stored.data)
        return record.created_at

    await queue.open_run(run)
    first = await created_at()
    await QueueClient(bus).open_run(run)
    assert await created_at() == first


async def test_followers_hear_of_each_outcome_and_look_again_as_they_may_miss_one(queue: QueueClient, run: str) -> None:
    stored: list[RolloutId] = []
    missed = asyncio.Event()
    async with queue.follow(run, stored.append, missed.set, look_again_every_s=0.01):
        await queue.outcomes.put(rollout(run, 3), replaces=None, patience_s=10.0)
        await until(lambda: stored)
        async with asyncio.timeout(300):
            await missed.wait()
    assert stored == [RolloutId(run, 3, 0)]
    await queue.outcomes.put(rollout(run, 4), replaces=None, patience_s=10.0)
    async with queue.follow(run, stored.append, missed.set):
        await queue.outcomes.put(rollout(run, 5), replaces=None, patience_s=10.0)
        await until(lambda: len(stored) > 1)
    assert stored[1:] == [RolloutId(run, 5, 0)]


async def test_a_follower_leaves_nothing_behind_on_the_connection(bus: Bus, queue: QueueClient, run: str) -> None:
    """A trainer may keep one for many runs."""
    num_subscriptions, num_callbacks = len(bus._nc._subs), len(bus._on_reconnect)
    async with queue.follow(run, lambda _: None, lambda: None):
        assert len(bus._nc._subs) == num_subscriptions + 1
    assert len(bus._nc._subs) == num_subscriptions
    assert len(bus._on_reconnect) == num_callbacks


async def test_queued_tasks_that_are_cancelled_leave_the_queue_with_an_outcome(queue: QueueClient, run: str) -> None:
    for index in range(3):
        await queue.submit(task(run, index))
    assert await queue.cancel(run, 1) == 1
    assert [found.task_index for _, found in [one async for one in queue.queued(run)]] == [0, 2]
    assert await queue.cancel(run) == 2
    assert await queue.num_queued(run) == 0
    ended = [outcome async for _, outcome in queue.outcomes.read(run) if isinstance(outcome, Failure)]
    assert [(outcome.task_index, outcome.failure_class) for outcome in ended] == [
        (1, "cancelled"),
        (0, "cancelled"),
        (2, "cancelled"),
    ]


async def test_the_tasks_that_agents_end_meanwhile_count_as_cancelled(
    queue: QueueClient, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for index in range(3):
        await queue.submit(task(run, index))
    mark = queue.mark_cancelled

    async def mark_and_end(*args: Any) -> None:
        await mark(*args)
        await streams.delete_tasks(queue._js, run)

    monkeypatch.setattr(queue, "mark_cancelled", mark_and_end)
    assert await queue.cancel(run) == 3


async def test_a_run_that_is_opened_again_is_not_cancelled_by_the_marks_of_the_deleted_one(
    bus: Bus, queue: QueueClient, js: JetStream, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped: list[int | None] = []
    cancellations = Cancellations(bus, lambda _run, task_index: stopped.append(task_index))
    await cancellations.start(run)
    for index in (3, None):
        await queue.mark_cancelled(run, index)
    await until(lambda: stopped == [3, None])
    assert await cancellations.is_still_cancelled(run, 3)  # what was just heard may not be stored yet
    monkeypatch.setattr(cancel, "STORING_S", 0.0)
    assert await cancellations.is_still_cancelled(run, 3)
    await streams.delete_run(js, run)
    both = await asyncio.gather(*(cancellations.is_still_cancelled(run, 3) for _ in range(2)))
    assert both == [False, False]
    await queue.mark_cancelled(run, 3)
    await until(lambda: stopped == [3, None, 3])
    assert await cancellations.is_still_cancelled(run, 3)
    assert not await cancellations.is_still_cancelled(run, 4)
