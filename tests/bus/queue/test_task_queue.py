"""An agent has work in all its slots for as long as there are tasks."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from types import SimpleNamespace

import pytest

from gymq.bus import Bus, streams
from gymq.bus.pull import Delivery, Pull
from gymq.bus.queue import task_queue
from gymq.bus.queue.cancel import Cancellations
from gymq.bus.queue.client import QueueClient
from gymq.bus.queue.steering import read_steering, steer
from gymq.bus.queue.task_queue import TaskQueue
from gymq.cluster.server import EmbeddedServer
from gymq.protocol import subjects
from gymq.protocol.codec import encode
from gymq.protocol.messages import Priority, Task
from gymq.protocol.subjects import TaskQueueName
from tests.conftest import Connect
from tests.support.queues import queues_of_runs
from tests.support.waiting import DEADLINE_S, until, until_answer

Kill = Callable[[], Awaitable[None]]
AT_ONCE = 1000  # tasks that are submitted at the same time


async def queue_tasks(bus: Bus, run: str, num_tasks: int) -> None:
    """Make the queue of an agent with the name of the run, and tasks in it."""
    await streams.ensure_agent(bus.js, run)
    for number in range(num_tasks):
        task = Task(run=run, task_index=number, rollout_index=0, agent=run, row=b"{}", timeout_s=60.0)
        await bus.js.store(subjects.TASK.of(run, run), encode(task))


@pytest.mark.parametrize("slots", [2, 3, 8])
async def test_a_slot_that_is_free_never_pauses_while_there_are_tasks(
    bus: Bus, run: str, monkeypatch: pytest.MonkeyPatch, slots: int
) -> None:
    monkeypatch.setattr(task_queue, "WATCH_S", 2 * DEADLINE_S)
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
        await until(lambda: queue.load == 0 and not queue.num_held_back)
    finally:
        await queue.drain(DEADLINE_S)


async def test_no_more_tasks_start_than_there_is_room_for(bus: Bus, run: str) -> None:
    await queue_tasks(bus, run, 5)
    most, go = 2, asyncio.Event()

    async def handle(task: Task, delivery: Delivery) -> None:
        await go.wait()
        await delivery.ack()

    queue = TaskQueue(bus, run, 8, handle, room=lambda: max(0, most - queue.load))
    await queue.start()
    try:
        await until(lambda: queue.load == 2)
        assert queue.num_held_back == 3
        most = 3
        await until(lambda: queue.load == 3)
        assert queue.num_held_back == 2
        go.set()
        await until(lambda: queue.load == 0 and not queue.num_held_back)
    finally:
        await queue.drain(DEADLINE_S)


class Agents:
    """Processes of one agent whose tasks end when the test says so."""

    def __init__(self, connect: Connect, url: str, agent: str) -> None:
        self.started: list[str] = []  # the runs of the tasks, in the order in which they were started
        self.running: list[tuple[str, asyncio.Event]] = []
        self._connect = connect
        self._url = url
        self._agent = agent
        self._queues: list[TaskQueue] = []
        self._is_stopping = False

    async def start(self, slots: int) -> TaskQueue:
        queue = TaskQueue(await self._connect(self._url), self._agent, slots, self._handle)
        await queue.start()
        self._queues.append(queue)
        return queue

    async def _handle(self, task: Task, delivery: Delivery) -> None:
        end = asyncio.Event()
        self.started.append(task.run)
        self.running.append((task.run, end))
        if not self._is_stopping:
            await end.wait()
        await delivery.ack()

    def end_one(self) -> None:
        """End the task that has run longest."""
        self.running.pop(0)[1].set()

    async def work(self, num_tasks: int) -> Counter[str]:
        """End so many tasks, each after all slots are in use; the runs of those that took their place."""
        first = len(self.started)
        for number in range(num_tasks):
            self.end_one()
            await until(lambda: len(self.started) > first + number, every_s=0.001)  # noqa: B023
        return Counter(self.started[first:])

    async def stop(self) -> None:
        self._is_stopping = True
        for _, end in self.running:
            end.set()
        await asyncio.gather(*(queue.drain(DEADLINE_S) for queue in self._queues))


@pytest.fixture
async def agents(bus: Bus, connect: Connect, shared_url: str, run: str) -> AsyncIterator[Agents]:
    await streams.ensure_agent(bus.js, run)
    made = Agents(connect, shared_url, run)
    yield made
    await made.stop()
    await bus.js.api(f"STREAM.PURGE.{streams.TASKS}", {"filter": f"gym.*.*.{run}"})


async def submit(bus: Bus, run: str, agent: str, count: int, *, urgent: bool = False) -> None:
    """Put tasks into a queue, and wait until it is open."""
    queue = TaskQueueName("urgent" if urgent else "tasks", run, agent)
    client = QueueClient(bus)
    for first in range(0, count, AT_ONCE):
        async with asyncio.TaskGroup() as group:
            for number in range(first, min(first + AT_ONCE, count)):
                task = Task(run=run, task_index=number, rollout_index=0, agent=agent, row=b"{}", timeout_s=60.0)
                group.create_task(client.submit(task, urgent=urgent))
    await until_answer(lambda: streams.queues(bus.js), lambda names: queue.consumer in names)


@pytest.mark.parametrize("processes", [pytest.param(1, marks=pytest.mark.nightly), 3])
async def test_runs_share_the_slots_by_weight_to_within_five_percent(
    bus: Bus, run: str, agents: Agents, processes: int
) -> None:
    weights = {f"{run}-{name}": share for name, share in (("four", 4.0), ("two", 2.0), ("one", 1.0))}
    for name, share in weights.items():
        await steer(bus, name, share=share)
        await submit(bus, name, run, int(250 * share))  # more than are worked on
    queues = [await agents.start(14 // processes) for _ in range(processes)]
    await until(lambda: all(queue.load == 14 // processes for queue in queues))
    await agents.work(210)
    counts = await agents.work(1400)
    for name, share in weights.items():
        assert counts[name] == pytest.approx(200 * share, rel=0.05), counts


@pytest.mark.nightly
async def test_a_change_of_the_share_counts_from_the_next_slot(bus: Bus, run: str, agents: Agents) -> None:
    a, b = f"{run}-a", f"{run}-b"
    for name in (a, b):
        await submit(bus, name, run, 800)
    queue = await agents.start(8)
    await until(lambda: queue.load == 8)
    await agents.work(100)
    await steer(bus, a, share=3.0)
    await bus.flush()
    await agents.work(16)
    counts = await agents.work(400)
    assert counts[a] == pytest.approx(300, rel=0.05)
    assert counts[b] == pytest.approx(100, rel=0.05)


async def test_an_urgent_run_starts_in_a_slot_of_its_own_and_then_with_each_that_is_free(
    bus: Bus, run: str, agents: Agents
) -> None:
    long, urgent = f"{run}-long", f"{run}-urgent"
    await submit(bus, long, run, 100)
    queue = await agents.start(8)
    await until(lambda: len(agents.started) == 8)
    await submit(bus, urgent, run, 5, urgent=True)
    await until(lambda: len(agents.started) == 9)  # a task has a slot before it starts
    assert (queue.load, agents.started[8:]) == (9, [urgent])
    assert await agents.work(4) == {urgent: 4}
    await agents.work(4)  # of the long run, for as long as slots are left to it
    assert agents.started[13:] == [long] * 4


async def test_a_run_that_becomes_urgent_goes_first(
    bus: Bus, run: str, agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Time passes with the tasks: on a busy machine those in flight have used much of it when the priority changes.
    clock = SimpleNamespace(monotonic=lambda: len(agents.started) / 100)
    monkeypatch.setattr(task_queue, "time", clock)
    long, other = f"{run}-long", f"{run}-other"
    for name in (long, other):
        await submit(bus, name, run, 100)
    await steer(bus, other, priority=Priority.BACKGROUND)
    queue = await agents.start(8)
    await until(lambda: queue.load == 8)
    assert (await agents.work(20))[other] <= 1
    await steer(bus, other, priority=Priority.URGENT)
    await until(lambda: queue.load == 9 and agents.started[-1] == other)
    assert (await agents.work(20))[other] >= 19


@pytest.mark.parametrize("queued", [5000, pytest.param(streams.MAX_WAITING_TASKS, marks=pytest.mark.nightly)])
async def test_a_run_does_not_wait_behind_the_tasks_of_another(bus: Bus, run: str, agents: Agents, queued: int) -> None:
    many, few = f"{run}-many", f"{run}-few"
    await submit(bus, many, run, queued)
    queue = await agents.start(4)
    await until(lambda: queue.load == 4)
    await submit(bus, few, run, 2)
    await until_answer(lambda: _lanes(queue), lambda names: len(names) == 2)
    assert (await agents.work(4))[few] == 2


async def _lanes(queue: TaskQueue) -> list[str]:
    return list(queue._lanes)


async def test_a_paused_run_starts_nothing_and_continues_when_it_is_resumed(bus: Bus, run: str, agents: Agents) -> None:
    paused, other = f"{run}-paused", f"{run}-other"
    for name in (paused, other):
        await submit(bus, name, run, 50)
    queue = await agents.start(4)
    await until(lambda: queue.load == 4)
    await steer(bus, paused, paused=True)
    await bus.flush()
    in_flight = agents.started.count(paused)
    assert in_flight
    assert await agents.work(20) == {other: 20}
    assert {name for name, _ in agents.running} == {other}  # what was in flight has ended
    await steer(bus, paused, paused=False)
    await bus.flush()
    assert (await agents.work(20))[paused] >= 8


async def test_tasks_of_a_paused_run_are_not_delivered_again_and_again(bus: Bus, run: str, agents: Agents) -> None:
    queue = await agents.start(200)
    await submit(bus, run, run, 1)
    await until(lambda: bool(agents.running))
    agents.end_one()
    (lane,) = queue._lanes.values()
    await until(lambda: lane.pull.outstanding > 100)
    await steer(bus, run, paused=True)
    await until(lambda: lane.is_paused)
    await submit(bus, run, run, 3)
    await until(lambda: not lane.pull.outstanding)
    info = await bus.js.api(f"CONSUMER.INFO.{streams.TASKS}.{lane.queue.consumer}")
    assert info["delivered"]["consumer_seq"] <= 4
    await steer(bus, run, paused=False)
    await until(lambda: len(agents.running) == 3)


async def test_a_run_that_is_opened_again_is_not_paused_as_the_deleted_one_was(
    bus: Bus, run: str, agents: Agents
) -> None:
    queue = await agents.start(2)
    await submit(bus, run, run, 1)
    await until(lambda: bool(agents.running))
    agents.end_one()
    await until(lambda: not queue.load)
    await steer(bus, run, share=2.0)
    await steer(bus, run, paused=True)
    await until(lambda: all(lane.is_paused for lane in queue._lanes.values()))
    await streams.delete_run(bus.js, run)
    await submit(bus, run, run, 1)
    await until(lambda: len(agents.running) == 1)
    await steer(bus, run, paused=True)  # with a lower number than the last change of the deleted run
    await until(lambda: all(lane.is_paused for lane in queue._lanes.values()))


async def test_a_pause_and_shares_survive_the_agent(bus: Bus, run: str, agents: Agents) -> None:
    paused, other = f"{run}-paused", f"{run}-other"
    for name in (paused, other):
        await submit(bus, name, run, 50)
    await steer(bus, paused, paused=True)
    queue = await agents.start(4)
    await until(lambda: queue.load == 4)
    assert await agents.work(20) == {other: 20}


async def test_a_pause_a_share_and_a_cancellation_survive_the_server(
    own_server: EmbeddedServer, own_bus: Bus, kill_server: Kill, connect: Connect, run: str
) -> None:
    await steer(own_bus, run, paused=True, share=4.0)
    await QueueClient(own_bus).cancel(f"{run}-cancelled")
    await kill_server()
    await own_server.start()
    bus = await connect(own_server.url)
    steering = await read_steering(bus, run)
    assert steering is not None
    assert (steering.paused, steering.share) == (True, 4.0)
    cancellations = Cancellations(bus, lambda run, task: None)
    await cancellations.start()
    await until(lambda: (f"{run}-cancelled", 0) in cancellations)


async def test_never_more_of_a_run_is_in_flight_than_its_limit(bus: Bus, run: str, agents: Agents) -> None:
    limited, other = f"{run}-limited", f"{run}-other"
    await steer(bus, limited, max_in_flight=2)
    for name in (limited, other):
        await submit(bus, name, run, 100)
    queues = [await agents.start(4) for _ in range(2)]
    await until(lambda: all(queue.load == 4 for queue in queues))
    for _ in range(60):
        await agents.work(1)
        assert sum(name == limited for name, _ in agents.running) <= 2
    assert agents.started.count(limited) >= 10


async def test_tasks_of_an_agent_that_died_are_taken_while_others_wait(bus: Bus, run: str, agents: Agents) -> None:
    """A queue in which nothing is new may have tasks that were delivered before."""
    lost, other = f"{run}-lost", f"{run}-other"
    for name in (lost, other):
        await submit(bus, name, run, 6 if name == lost else 100)
    taken: list[Delivery] = []
    pull = Pull(bus, streams.TASKS, TaskQueueName("tasks", lost, run).consumer, taken.append)
    await pull.start()
    await pull.ask(6)
    await until(lambda: len(taken) == 6)
    queue = await agents.start(2)
    await until(lambda: queue.load == 2)
    for delivery in taken:
        await delivery.nak()
    await bus.flush()
    counts = await agents.work(40)
    assert counts[lost] == 6
    await pull.stop()


async def test_tasks_whose_stream_is_gone_settle_none_of_the_next_stream(own_bus: Bus, run: str) -> None:
    begun: list[asyncio.Event] = []

    async def handle(_task: Task, delivery: Delivery) -> None:
        begun.append(go := asyncio.Event())
        await go.wait()
        await delivery.ack()

    async def in_queue() -> int:
        return int((await own_bus.js.api(f"STREAM.INFO.{streams.TASKS}"))["state"]["messages"])

    queue = TaskQueue(own_bus, run, 2, handle)
    async with queues_of_runs(own_bus):
        await queue_tasks(own_bus, run, 1)
        await queue.start()
        try:
            await until(lambda: len(begun) == 1)
            await own_bus.js.api(f"STREAM.DELETE.{streams.TASKS}")
            await until(lambda: all(delivery.is_void for delivery in queue._running.values()))
            await streams.ensure(own_bus.js, [run])
            await queue_tasks(own_bus, run, 1)
            await until(lambda: len(begun) == 2)  # although a task with its number is in work
            begun[0].set()
            await until(lambda: queue.load == 1)
            await own_bus.flush()
            assert await in_queue() == 1
            begun[1].set()
            await until_answer(in_queue, lambda count: count == 0)
        finally:
            await queue.drain(DEADLINE_S)
