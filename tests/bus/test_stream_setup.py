"""What exists on a server: made once, brought up to date, never damaged by being made again."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from nats.aio.msg import Msg

from gymq.bus import Bus, BusError, streams
from gymq.bus.jetstream import JetStream, JetStreamError
from gymq.bus.queue.outcome_store import OutcomeStore
from gymq.cluster.server import EmbeddedServer
from gymq.cluster.server.process import find_binary
from gymq.protocol import subjects
from gymq.protocol.messages import VerifiedRollout
from gymq.protocol.subjects import TaskQueueName
from tests.support.ports import free_port
from tests.support.waiting import until


async def configs(js: JetStream) -> dict[str, dict[str, Any]]:
    names = (await js.api("STREAM.NAMES"))["streams"]
    return {name: (await js.api(f"STREAM.INFO.{name}"))["config"] for name in names}


async def consumers(js: JetStream, stream: str) -> dict[str, dict[str, Any]]:
    listed = (await js.api(f"CONSUMER.LIST.{stream}"))["consumers"]
    return {consumer["name"]: consumer["config"] for consumer in listed}


async def test_all_streams_and_consumers_are_made(own_bus: Bus) -> None:
    js = own_bus.js
    await streams.ensure(js, ["simple", "other"])
    assert set(await configs(js)) == set(streams.stream_configs())
    assert await streams.served_agents(js) == {"simple": streams.ACK_WAIT_S, "other": streams.ACK_WAIT_S}
    assert set(await consumers(js, streams.TASKS)) == {"intake"}
    assert set(await consumers(js, streams.ROLLOUTS)) == set()
    assert set(await consumers(js, streams.ADVISORIES)) == {"janitor"}


async def test_making_them_again_changes_nothing_and_loses_nothing(own_bus: Bus) -> None:
    js = own_bus.js
    await streams.ensure(js, ["simple"])
    await js.store(subjects.TASK.of("r", "simple"), b"task")
    before = await configs(js), await consumers(js, streams.TASKS)
    await streams.ensure(js, ["simple"])
    assert (await configs(js), await consumers(js, streams.TASKS)) == before
    assert await js.count_by_subject(streams.TASKS, "gym.tasks.>") == {"gym.tasks.r.simple": 1}


async def test_two_operators_may_make_them_at_once(own_bus: Bus, own_server: EmbeddedServer, connect: Any) -> None:
    other = (await connect(own_server.url)).js
    await asyncio.gather(*(streams.ensure(js, ["simple"]) for js in (own_bus.js, other)))


async def test_a_stream_with_another_configuration_is_brought_up_to_date(own_bus: Bus) -> None:
    js = own_bus.js
    wanted = (await configs(js))[streams.TASKS]
    old = wanted | {"max_msgs_per_subject": 7, "subjects": ["gym.tasks"]}
    await js.api(f"STREAM.UPDATE.{streams.TASKS}", old)
    await js.store(subjects.SUBMISSION.pattern, b"kept")
    await streams.ensure(js, [])
    assert (await configs(js))[streams.TASKS] == wanted
    assert await js.count_by_subject(streams.TASKS, subjects.SUBMISSION.pattern) == {subjects.SUBMISSION.pattern: 1}


async def test_a_consumer_with_another_configuration_is_brought_up_to_date(own_bus: Bus) -> None:
    js = own_bus.js
    queue = TaskQueueName("tasks", "r", "simple")
    await streams.ensure_consumer(js, streams.TASKS, queue.consumer, {"filter_subject": queue.subject})
    await streams.ensure_queue(js, queue, ack_wait_s=7.0, max_in_flight=3)
    config = (await consumers(js, streams.TASKS))[queue.consumer]
    assert (config["max_deliver"], config["max_ack_pending"]) == (streams.MAX_DELIVERIES, 3)
    assert config["ack_wait"] == 7_000_000_000


async def test_a_stream_of_somebody_else_on_our_subjects_is_a_sentence(own_bus: Bus) -> None:
    js = own_bus.js
    await js.api(f"STREAM.DELETE.{streams.RUNS}")
    await js.api("STREAM.CREATE.THEIRS", {"name": "THEIRS", "subjects": ["gym.runs.*"]})
    with pytest.raises(BusError, match="cannot create the stream RUNS: subjects overlap"):
        await streams.ensure(js, [])


async def test_a_server_without_jetstream_is_a_sentence(
    tmp_path: Path, connect: Callable[[str], Awaitable[Bus]]
) -> None:
    port = free_port("127.0.0.1")
    server = await asyncio.create_subprocess_exec(
        str(find_binary()), "-a", "127.0.0.1", "-p", str(port), cwd=tmp_path, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        bus = await connect(f"nats://127.0.0.1:{port}")
        with pytest.raises(BusError, match="JetStream"):
            await streams.ensure(bus.js, [], patience_s=0.5)
    finally:
        server.kill()
        await server.wait()


async def test_an_agent_is_known_once_it_has_a_queue(js: JetStream, run: str) -> None:
    assert not await streams.has_agent(js, run)
    with pytest.raises(BusError, match=f"'{run}' has no task queue"):
        await streams.ack_wait_s(js, run)
    await streams.ensure_agent(js, run)
    assert await streams.has_agent(js, run)
    assert await streams.ack_wait_s(js, run) == streams.ACK_WAIT_S


@pytest.mark.parametrize("name", ["a.b", "", "a b", "*"])
async def test_an_agent_whose_name_cannot_be_one_is_refused(js: JetStream, name: str) -> None:
    with pytest.raises(subjects.BadToken):
        await streams.ensure_agent(js, name)


async def test_every_stored_outcome_rings_the_doorbell(bus: Bus, other_bus: Bus, run: str) -> None:
    rung: list[Msg] = []
    await other_bus.listen(subjects.DONE.below(run), rung.append)
    await other_bus.flush()
    outcome = VerifiedRollout(run=run, task_index=1, rollout_index=2, agent="a", row=b"{}", response={}, reward=1.0)
    await OutcomeStore(bus).put(outcome, replaces=None, patience_s=20)
    await until(lambda: bool(rung))
    assert [(message.subject, message.data) for message in rung] == [(f"gym.done.{run}.1.2", b"")]


async def test_a_second_task_with_the_same_id_is_not_queued(js: JetStream, run: str) -> None:
    headers = {"Nats-Msg-Id": f"{run}/0/0"}
    first = await js.store(subjects.TASK.of(run, "x"), b"", headers=headers)
    second = await js.store(subjects.TASK.of(run, "x"), b"", headers=headers)
    assert (first.duplicate, second.duplicate) == (False, True)


async def test_deleting_a_run_leaves_the_others(own_bus: Bus, run: str) -> None:
    js = own_bus.js
    other = f"{run}x"
    for name in (run, other):
        await js.store(subjects.TASK.of(name, "x"), b"")
        await js.store(subjects.URGENT_TASK.of(name, "x"), b"")
        await js.store(subjects.ROLLOUT.of(name, 0, 0), b"")
        await js.store(subjects.ROLLOUT_PART.begun(name, 0, 0, "d") + ".0", b"")
        await js.store(subjects.RUN.of(name), b"")
        await js.store(subjects.PROFILE.of(name), b"")
        await js.store(subjects.STEERING.of(name), b"")
        await js.store(subjects.cancelled(name, None), b"")
        await js.store(subjects.JOURNAL.of(name, 0, 0), b"")
    await streams.delete_run(js, run)
    left = [
        subject
        for stream in streams.stream_configs()
        for subject in await js.count_by_subject(stream, ">")
        if run in subject
    ]
    assert len(left) == 9
    assert all(other in subject for subject in left)


async def test_a_worker_cannot_use_a_stream_that_is_not_there(own_bus: Bus) -> None:
    js = own_bus.js
    await js.api(f"STREAM.DELETE.{streams.TASKS}")
    with pytest.raises(JetStreamError, match="the NATS server has no stream"):
        await streams.ensure_queue(js, TaskQueueName("tasks", "r", "simple"), ack_wait_s=1.0)
