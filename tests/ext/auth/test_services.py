"""The services do their work in a role of their own; what the server itself says reaches them from the account of the
streams."""

import asyncio
import os
from typing import Any

import msgspec

from gymq.bus import Bus, streams
from gymq.bus.queue.client import QueueClient
from gymq.bus.queue.outcome_store import OutcomeStore
from gymq.execution.services.intake import Intake
from gymq.execution.services.janitor import Janitor
from gymq.protocol import subjects
from gymq.protocol.codec import encode
from gymq.protocol.messages import Failure, FailureClass, Submission, Task
from gymq.protocol.subjects import TaskQueueName
from tests.support.waiting import DEADLINE_S, until_answer

from .conftest import RawClients, RoleServer


async def test_a_task_that_was_delivered_too_often_gets_its_outcome(
    role_server: RoleServer, raw: RawClients, run: str
) -> None:
    before = role_server.violations()
    client = await Bus.connect(role_server.url_of("client"), role="client", name="test")
    services = await Bus.connect(role_server.url_of("services"), role="services", name="test")
    operator = await raw.connect("operator")
    agent = f"a{run}"
    name = TaskQueueName("tasks", run, agent).consumer
    consumer: dict[str, Any] = {"durable_name": name, "filter_subject": subjects.TASK.of(run, agent)}
    consumer |= {"ack_policy": "explicit", "ack_wait": 200_000_000, "max_deliver": 1}
    created = await operator.api(f"CONSUMER.CREATE.TASKS.{name}", {"stream_name": "TASKS", "config": consumer})
    assert "error" not in created
    task = Task(run=run, task_index=0, rollout_index=0, agent=agent, row=b"{}", timeout_s=60)
    await client.js.store(subjects.TASK.of(run, agent), encode(task))
    janitor = Janitor(services)
    await janitor.start()
    agents = await raw.connect("agent")
    pull = b'{"batch": 1, "expires": 5000000000}'
    await agents.hears("_INBOX_agent.x.1")
    async with asyncio.timeout(DEADLINE_S):
        while (stored := await OutcomeStore(client).find(run, 0, 0)) is None:
            assert await agents.may_publish(f"$JS.API.CONSUMER.MSG.NEXT.TASKS.{name}", pull, reply="_INBOX_agent.x.1")
            await asyncio.sleep(0.1)
    outcome = await OutcomeStore(client).decode(stored.data)
    assert isinstance(outcome, Failure)
    assert outcome.failure_class is FailureClass.REDELIVERED_TOO_OFTEN
    await until_answer(
        lambda: client.js.count_by_subject(streams.TASKS, subjects.TASK.of(run)), lambda counts: not counts
    )
    letters = subjects.DEAD_LETTER_OF_RUN.of(subjects.EACH, run)
    assert len([letter async for letter in client.js.read(streams.DEAD_LETTERS, letters)]) == 1
    await janitor.stop()
    await client.close()
    await services.close()
    assert role_server.violations() == before


async def test_tasks_of_an_agent_that_nobody_serves_end_after_a_while(role_server: RoleServer, run: str) -> None:
    before = role_server.violations()
    client = await Bus.connect(role_server.url_of("client"), role="client", name="test")
    services = await Bus.connect(role_server.url_of("services"), role="services", name="test")
    js = client.js

    def task(index: int, agent: str) -> bytes:
        return encode(Task(run=run, task_index=index, rollout_index=0, agent=agent, row=b"{}", timeout_s=60))

    async def queued() -> list[str]:
        patterns = (subjects.TASK.of(run), subjects.URGENT_TASK.of(run))
        return [stored.subject for pattern in patterns async for stored in js.read(streams.TASKS, pattern)]

    nobody, served = f"nobody-{run}", f"served-{run}"
    operator = await Bus.connect(role_server.url_of("operator"), role="operator", name="test")
    await streams.ensure_agent(operator.js, served)
    await operator.close()
    await js.store(subjects.TASK.of(run, nobody), task(0, nobody))
    await js.store(subjects.TASK.of(run, nobody), b"no task")
    await js.store(subjects.URGENT_TASK.of(run, nobody), task(1, nobody))
    await js.store(subjects.TASK.of(run, served), task(2, served))
    janitor = Janitor(services)
    await janitor.end_unserved(3600.0)
    assert len(await queued()) == 4
    await janitor.end_unserved(0.0)
    assert await queued() == [subjects.TASK.of(run, served)]
    outcomes = [outcome async for _, outcome in OutcomeStore(client).read(run)]
    assert [outcome.task_index for outcome in outcomes] == [0, 1]
    for outcome in outcomes:
        assert isinstance(outcome, Failure)
        assert outcome.failure_class is FailureClass.NO_WORKER
        assert nobody in outcome.message
    letters = [
        letter async for letter in js.read(streams.DEAD_LETTERS, subjects.DEAD_LETTER_OF_RUN.of(subjects.EACH, run))
    ]
    assert len(letters) == 2
    await client.close()
    await services.close()
    assert role_server.violations() == before


async def test_a_submission_whose_task_exceeds_a_message_is_queued_in_parts(role_server: RoleServer, run: str) -> None:
    """Bytes of a row become text in its task."""
    before = role_server.violations()
    client = await Bus.connect(role_server.url_of("client"), role="client", name="test")
    services = await Bus.connect(role_server.url_of("services"), role="services", name="test")
    operator = await Bus.connect(role_server.url_of("operator"), role="operator", name="test")
    agent = f"a{run}"
    await streams.ensure_agent(operator.js, agent)
    size = client.max_body_bytes
    row = {"responses_create_params": {"input": "?"}, "image": os.urandom(size - 1000)}
    submission = encode(Submission(run=run, agent=agent, row=msgspec.Raw(msgspec.msgpack.encode(row))))
    assert len(submission) <= size
    intake = Intake(services)
    await intake.start()
    await client.js.store(subjects.SUBMISSION.pattern, submission)

    async def queued() -> list[Task]:
        return [task async for _, task in QueueClient(client).queued(run)]

    (task,) = await until_answer(queued, bool)
    assert len(encode(task)) > size
    await intake.stop()
    for bus in (client, services, operator):
        await bus.close()
    assert role_server.violations() == before


async def test_a_queue_that_the_operator_closes_delivers_nothing_meanwhile(role_server: RoleServer, run: str) -> None:
    operator = await Bus.connect(role_server.url_of("operator"), role="operator", name="test")
    name = TaskQueueName("tasks", run, "a")
    await streams.ensure_queue(operator.js, name, ack_wait_s=30.0)
    paused = await operator.js.api(f"CONSUMER.PAUSE.TASKS.{name.consumer}", {"pause_until": "2100-01-01T00:00:00Z"})
    assert paused["paused"]
    await streams.close_queue(operator.js, name.consumer)
    assert name.consumer not in await streams.queues(operator.js)
    await operator.close()
