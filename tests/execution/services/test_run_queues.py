"""Each run has a queue of its own for each agent: opened with its first task, closed when it wants nothing more."""

import asyncio

import msgspec
import pytest

from gymq.bus import Bus, streams
from gymq.bus.jetstream import JetStream
from gymq.bus.pull import Delivery, Pull
from gymq.bus.queue.client import QueueClient
from gymq.bus.queue.steering import steer
from gymq.execution.services import run_queues
from gymq.execution.services.run_queues import RunQueues
from gymq.protocol.messages import Task
from gymq.protocol.subjects import TaskQueueName
from tests.support.waiting import until, until_answer


@pytest.fixture
async def js(own_bus: Bus) -> JetStream:
    await streams.ensure(own_bus.js, ["a"])
    return own_bus.js


@pytest.fixture
async def queues(own_bus: Bus, js: JetStream) -> RunQueues:
    """Not started: tests look by themselves."""
    made = RunQueues(own_bus)
    await made._steered.start()
    return made


async def put(js: JetStream, *subjects_: str) -> None:
    for subject in subjects_:
        await js.store(subject, b"")


async def test_a_queue_is_opened_for_each_run_agent_and_kind(js: JetStream, queues: RunQueues) -> None:
    await streams.ensure_agent(js, "b", ack_wait_s=7.0)
    await put(js, "gym.tasks.r.a", "gym.tasks.r.b", "gym.urgent.r.a", "gym.tasks.s.a", "gym.tasks.s.a")
    await queues.look()
    assert set(await streams.queues(js)) == {"tasks_a@r", "tasks_b@r", "urgent_a@r", "tasks_a@s"}
    info = await js.api("CONSUMER.INFO.TASKS.tasks_b@r")
    assert info["config"]["ack_wait"] == 7_000_000_000
    assert info["config"]["filter_subject"] == "gym.tasks.r.b"


async def test_a_run_with_a_name_that_is_not_valid_has_a_queue_too(js: JetStream, queues: RunQueues) -> None:
    """Its tasks must reach an agent, which moves them to the dead letters."""
    await put(js, "gym.tasks.a@b.a", "gym.tasks.größer.a")
    await queues.look()
    names = await streams.queues(js)
    assert len(names) == 2
    assert all(name.startswith("tasks_a@=") for name in names)


async def test_an_agent_that_is_not_served_has_no_queue(js: JetStream, queues: RunQueues) -> None:
    await put(js, "gym.tasks.r.other")
    await queues.look()
    assert list(await streams.queues(js)) == []
    await streams.ensure_agent(js, "other")
    await queues.look()
    assert list(await streams.queues(js)) == ["tasks_other@r"]


async def test_an_empty_queue_is_closed_after_a_while_and_opened_again(
    js: JetStream, queues: RunQueues, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(js, "gym.tasks.r.a", "gym.tasks.s.a")
    await queues.look()
    await js.api("STREAM.PURGE.TASKS", {"filter": "gym.tasks.r.a"})
    await queues.look()
    assert len(await streams.queues(js)) == 2
    monkeypatch.setattr(run_queues, "CLOSE_AFTER_S", 0.0)
    await queues.look()
    assert list(await streams.queues(js)) == ["tasks_a@s"]
    await put(js, "gym.tasks.r.a")
    await queues.look()
    assert set(await streams.queues(js)) == {"tasks_a@r", "tasks_a@s"}


async def test_a_queue_that_gets_a_task_while_it_is_closed_delivers_it_once(
    own_bus: Bus, js: JetStream, queues: RunQueues, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_queues, "CLOSE_AFTER_S", 0.0)
    await put(js, "gym.tasks.r.a")
    await queues.look()
    await js.api("STREAM.PURGE.TASKS", {"filter": "gym.tasks.r.a"})
    taken: list[Delivery] = []
    pull = Pull(own_bus, streams.TASKS, "tasks_a@r", taken.append)
    await pull.start()
    names = streams.queues

    async def after_a_task_is_taken(js: JetStream) -> dict[str, TaskQueueName]:
        """The tasks are counted already."""
        await put(js, "gym.tasks.r.a")
        await pull.ask(1)
        await until(lambda: taken)
        return await names(js)

    with monkeypatch.context() as patch:
        patch.setattr(streams, "queues", after_a_task_is_taken)
        await queues.look()
    await queues.look()
    await pull.ask(2)
    await put(js, "gym.tasks.r.a")
    await until(lambda: taken[-1].sequence == 3)
    assert [delivery.sequence for delivery in taken] == [2, 3]
    await pull.stop()


async def test_there_are_never_more_queues_than_the_limit_and_none_waits_for_ever(
    js: JetStream, queues: RunQueues, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_queues, "MAX_QUEUES", 2)
    await put(js, *(f"gym.tasks.r{number}.a" for number in range(5)))
    served: set[str] = set()
    for _ in range(4):
        await queues.look()
        names = await streams.queues(js)
        assert len(names) <= 2
        served.update(names)
        for name in names:
            queue = TaskQueueName.of_consumer(name)
            assert queue is not None
            await js.api("STREAM.PURGE.TASKS", {"filter": queue.subject})
        await queues.look()  # closes them
    assert served == {f"tasks_a@r{number}" for number in range(5)}


async def test_a_limit_on_what_is_in_flight_is_that_of_the_queue(
    own_bus: Bus, js: JetStream, queues: RunQueues
) -> None:
    async def limit() -> int:
        await queues.look()
        info = await js.api("CONSUMER.INFO.TASKS.tasks_a@r")
        return int(info["config"]["max_ack_pending"])

    await put(js, "gym.tasks.r.a")
    await steer(own_bus, "r", max_in_flight=3)
    await until_answer(limit, lambda found: found == 3)
    await steer(own_bus, "r", max_in_flight=None)
    await until_answer(limit, lambda found: found == streams.MAX_IN_FLIGHT)


async def test_a_submitted_task_opens_its_queue_at_once(
    own_bus: Bus, js: JetStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_queues, "LOOK_EVERY_S", 3600.0)
    queues = RunQueues(own_bus)
    await queues.start()
    await own_bus.flush()
    await asyncio.sleep(0)
    task = Task(run="r", task_index=0, rollout_index=0, agent="a", row=b"{}", timeout_s=60.0)
    await QueueClient(own_bus).submit(task)
    await until_answer(lambda: streams.queues(js), lambda names: list(names) == ["tasks_a@r"])
    await queues.stop()


async def test_tasks_of_an_open_queue_cause_no_look(
    own_bus: Bus, js: JetStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_queues, "LOOK_EVERY_S", 3600.0)
    queues = RunQueues(own_bus)
    await queues.start()
    await own_bus.flush()
    task = Task(run="r", task_index=0, rollout_index=0, agent="a", row=b"{}", timeout_s=60.0)
    await QueueClient(own_bus).submit(task)
    await until_answer(lambda: streams.queues(js), lambda names: list(names) == ["tasks_a@r"])
    looks: list[int] = []
    look = queues.look

    async def counted() -> None:
        looks.append(1)
        await look()

    monkeypatch.setattr(queues, "look", counted)
    for number in range(1, 4):  # each by a client of its own, which announces the queue
        await QueueClient(own_bus).submit(msgspec.structs.replace(task, task_index=number))
    await QueueClient(own_bus).submit(task, urgent=True)
    await until_answer(lambda: streams.queues(js), lambda names: set(names) == {"tasks_a@r", "urgent_a@r"})
    assert looks == [1]
    await queues.stop()


async def test_the_consumers_of_intake_and_janitor_are_made_again(
    js: JetStream, queues: RunQueues, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumers = (("TASKS", "intake"), ("ADVISORIES", "janitor"))
    for stream, name in consumers:
        await streams.remove_consumer(js, stream, name)
    monkeypatch.setattr(run_queues, "MAKE_AGAIN_EVERY_S", 0.0)
    await queues.look()
    for stream, name in consumers:
        assert name in [found["name"] for found in await streams.consumers(js, stream)]


async def test_a_stream_that_is_missing_is_logged_once(
    js: JetStream, queues: RunQueues, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    looks: list[None] = []
    look = RunQueues.look

    async def counted(self: RunQueues) -> None:
        looks.append(None)
        await look(self)

    monkeypatch.setattr(run_queues, "LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(RunQueues, "look", counted)
    await js.api("STREAM.DELETE.TASKS")
    await queues.start()
    await until(lambda: len(looks) > 4)
    await queues.stop()
    assert [record.getMessage() for record in caplog.records if record.name == "gymq.run_queues"] == [
        "cannot look for new queues: the NATS server has no stream TASKS"
    ]
