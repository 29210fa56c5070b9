"""What the viewer reads of rollouts in flight."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from gymq.bus import Bus, streams
from gymq.bus.jetstream import Stored
from gymq.bus.pull import Delivery, Pull
from gymq.bus.queue.client import QueueClient
from gymq.ext.viewer.in_flight import tasks_in_flight
from gymq.protocol.messages import Task
from gymq.protocol.subjects import TaskQueueName
from tests.support.waiting import until


async def test_the_tasks_in_flight_are_read_and_not_those_behind_them(
    bus: Bus, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, js = QueueClient(bus), bus.js
    taken: list[Delivery] = []
    for name, number in ((run, 200), (f"{run}-later", 1)):
        of_run = TaskQueueName("tasks", name, "a")
        for index in range(number):
            task = Task(run=name, task_index=index, rollout_index=0, agent="a", row=b"{}", timeout_s=60.0)
            await queue.submit(task)
        await streams.ensure_queue(js, of_run, ack_wait_s=30.0)
        taken.clear()
        pull = Pull(bus, streams.TASKS, of_run.consumer, taken.append)
        await pull.start()
        await pull.ask(1)
        await until(lambda: len(taken) == 1)
        await pull.stop()
    read, num_read = js.read, 0

    async def counted(*of: Any, **settings: Any) -> AsyncIterator[Stored]:
        nonlocal num_read
        async for stored in read(*of, **settings):
            num_read += 1
            yield stored

    monkeypatch.setattr(bus.js, "read", counted)
    seen: dict[str, int] = {}
    assert [found.task_index async for found in tasks_in_flight(bus, run, seen)] == [0]
    assert num_read == 2
    assert [found async for found in tasks_in_flight(bus, run, seen)] == []
