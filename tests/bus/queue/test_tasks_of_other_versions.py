"""A task that this version cannot read is left for one that can, and ends in the end with a sentence."""

from typing import Any

import msgspec
import pytest

from gymq.bus import Bus, blobs, streams
from gymq.bus.pull import Delivery
from gymq.bus.queue import task_queue
from gymq.bus.queue.client import QueueClient
from gymq.bus.queue.outcome_store import OutcomeStore
from gymq.bus.queue.task_queue import TaskQueue
from gymq.execution.services.janitor import Janitor
from gymq.protocol import subjects
from gymq.protocol.codec import Decoder
from gymq.protocol.messages import BlobRef, Failure, FailureClass, Task
from gymq.protocol.subjects import RolloutId
from tests.support.queues import queues_of_runs
from tests.support.waiting import until, until_answer

decode_ref = Decoder(BlobRef)


def later_task(of_run: str, number: int = 0, **other: Any) -> bytes:
    """A task of a version to come."""
    fields = {"run": of_run, "task_index": number, "rollout_index": 0, "agent": of_run, "row": b"{}"}
    later = {"timeout_s": 60.0, "budget": [1, 2]}
    return msgspec.msgpack.encode({"type": "task.v2", **fields, **later, **other})


async def num_dead_letters(bus: Bus) -> int:
    state = (await bus.js.api(f"STREAM.INFO.{streams.DEAD_LETTERS}"))["state"]
    return int(state["messages"])


async def read_later_task(bus: Bus, body: bytes) -> Task:
    """Read tasks as the later version does."""
    fields = msgspec.msgpack.decode(body)
    if fields["type"] != "task.v2":
        fields = msgspec.msgpack.decode(await blobs.fetch(bus, decode_ref(body), "task"))
    return msgspec.convert(fields | {"type": "task.v1"}, Task)


async def test_it_is_left_for_a_process_that_can_read_it(
    own_bus: Bus, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await streams.ensure(own_bus.js, [run])
    taken: list[int] = []

    async def handle(task: Task, delivery: Delivery) -> None:
        taken.append(task.task_index)
        await delivery.ack()

    async with queues_of_runs(own_bus):
        ref = await blobs.store(own_bus, later_task(run, 1), "task", RolloutId(run, 1, 0))
        for body in (later_task(run), ref):
            await own_bus.js.store(subjects.TASK.of(run, run), body)
        old = TaskQueue(own_bus, run, 4, handle)
        await old.start()
        await until(lambda: sum(old.unread().values()) == 2)
        (reason,) = old.unread()
        assert "task.v2" in reason
        assert [task.task_index async for _, task in QueueClient(own_bus).queued(run)] == [0, 1]
        await old.drain(1.0)
        assert not taken
        assert await num_dead_letters(own_bus) == 0
        monkeypatch.setattr(task_queue, "read_task", read_later_task)
        new = TaskQueue(own_bus, run, 4, handle)
        await new.start()
        await until(lambda: sorted(taken) == [0, 1])
        await new.drain(1.0)


async def test_it_ends_with_a_sentence_after_its_last_delivery(
    own_bus: Bus, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "MAX_DELIVERIES", 2)
    await streams.ensure(own_bus.js, [run], ack_wait_s=1.0)
    janitor = Janitor(own_bus)
    await janitor.start()

    async def handle(_task: Task, _delivery: Delivery) -> None:
        raise AssertionError

    queue = TaskQueue(own_bus, run, 4, handle)
    async with queues_of_runs(own_bus):
        await own_bus.js.store(subjects.TASK.of(run, run), later_task(run))
        await queue.start()
        found = await until_answer(lambda: OutcomeStore(own_bus).find_outcome(run, 0, 0), bool)
        assert found is not None
        failure = found[1]
        assert isinstance(failure, Failure)
        assert failure.failure_class is FailureClass.REDELIVERED_TOO_OFTEN
        assert "it is a task of another version of gymq: " in failure.message
        assert "task.v2" in failure.message
        await queue.drain(1.0)
    await janitor.stop()


@pytest.mark.parametrize(
    "other", [{"run": "another"}, {"agent": "another"}, {"type": "rollout.v2"}, {"row": 1}, {"task_index": -1}]
)
async def test_what_has_not_the_head_of_a_task_is_a_dead_letter(own_bus: Bus, run: str, other: dict[str, Any]) -> None:
    await streams.ensure(own_bus.js, [run])

    async def handle(_task: Task, _delivery: Delivery) -> None:
        raise AssertionError

    queue = TaskQueue(own_bus, run, 4, handle)
    async with queues_of_runs(own_bus):
        await own_bus.js.store(subjects.TASK.of(run, run), later_task(run, **other))
        await queue.start()
        await until_answer(lambda: num_dead_letters(own_bus), lambda found: found == 1)
        await queue.drain(1.0)
    assert not queue.unread()
