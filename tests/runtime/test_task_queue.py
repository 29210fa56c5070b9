"""An agent has work in all its slots for as long as there are tasks."""

import asyncio

import pytest

from gymq.bus import Bus, streams
from gymq.bus.jetstream import Delivery
from gymq.protocol import subjects
from gymq.protocol.messages import Task, encode
from gymq.queue import task_queue
from gymq.queue.task_queue import TaskQueue
from tests.support.waiting import DEADLINE_S, until


async def queue_tasks(bus: Bus, run: str, num_tasks: int) -> None:
    """Make the queue of an agent with the name of the run, and tasks in it."""
    await streams.ensure_agent(bus.js, run)
    for number in range(num_tasks):
        task = Task(run=run, task_index=number, rollout_index=0, agent=run, row=b"{}", timeout_s=60.0)
        await bus.js.store(subjects.tasks(run, run), encode(task))


@pytest.mark.parametrize("slots", [2, 3, 8])
async def test_a_slot_that_is_free_never_pauses_while_there_are_tasks(
    bus: Bus, run: str, monkeypatch: pytest.MonkeyPatch, slots: int
) -> None:
    monkeypatch.setattr(task_queue, "EMPTY_PAUSE_S", 2 * DEADLINE_S)
    num_tasks = 200
    await queue_tasks(bus, run, num_tasks)
    done: set[int] = set()
    all_done = asyncio.Event()

    async def handle(task: Task, delivery: Delivery) -> None:
        for _ in range(task.task_index % 7):  # so that slots become free while tasks are asked for
            await asyncio.sleep(0)
        await delivery.ack()
        done.add(task.task_index)
        if len(done) == num_tasks:
            all_done.set()

    queue = TaskQueue(bus, run, slots, handle)
    await queue.start()
    try:
        async with asyncio.timeout(DEADLINE_S):
            await all_done.wait()
    finally:
        await queue.drain(DEADLINE_S)


async def test_tasks_that_find_no_slot_are_counted(bus: Bus, run: str) -> None:
    await queue_tasks(bus, run, 5)
    go = asyncio.Event()

    async def handle(task: Task, delivery: Delivery) -> None:
        await go.wait()
        await delivery.ack()

    queue = TaskQueue(bus, run, 2, handle)
    await queue.start()
    try:
        await until(lambda: queue.load == 2)
        assert queue.num_held_back == 3
        go.set()
        await until(lambda: queue.load == 0)
        assert queue.num_held_back == 0
    finally:
        await queue.drain(DEADLINE_S)
