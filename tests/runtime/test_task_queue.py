"""An agent has work in all its slots for as long as there are tasks."""

import asyncio

import pytest

from gymq.bus import Bus, streams
from gymq.bus.jetstream import Delivery
from gymq.protocol import subjects
from gymq.queue import task_queue
from gymq.queue.task_queue import TaskQueue
from tests.support.waiting import DEADLINE_S, until


@pytest.mark.parametrize("slots", [2, 3, 8])
async def test_a_slot_that_is_free_never_pauses_while_there_are_tasks(
    bus: Bus, run: str, monkeypatch: pytest.MonkeyPatch, slots: int
) -> None:
    monkeypatch.setattr(task_queue, "EMPTY_PAUSE_S", 2 * DEADLINE_S)
    await streams.ensure_agent(bus.js, run)
    num_tasks = 200
    for number in range(num_tasks):
        await bus.js.store(subjects.tasks(run, run), str(number).encode())
    done: set[bytes] = set()
    all_done = asyncio.Event()

    async def handle(delivery: Delivery) -> None:
        for _ in range(int(delivery.data) % 7):  # so that slots become free while tasks are asked for
            await asyncio.sleep(0)
        await delivery.ack()
        done.add(delivery.data)
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
    await streams.ensure_agent(bus.js, run)
    for number in range(5):
        await bus.js.store(subjects.tasks(run, run), str(number).encode())
    go = asyncio.Event()

    async def handle(delivery: Delivery) -> None:
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
