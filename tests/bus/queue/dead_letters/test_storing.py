"""What is given up is stored once as a dead letter, with all that a person needs to understand it."""

import asyncio
import os
import secrets
from typing import Any

import msgspec
import pytest

import gymq
from gymq.bus import Bus, streams
from gymq.bus.jetstream import JetStream
from gymq.bus.pull import Delivery, Pull
from gymq.bus.queue import cancel
from gymq.bus.queue.client import QueueClient
from gymq.bus.queue.dead_letters import MAX_UNREADABLE_BYTES, DeadLetters, dead_letter_failure, store_dead_letter
from gymq.bus.queue.outcome_store import OutcomeStore
from gymq.bus.queue.tasks import cancelled_outcome, read_task
from gymq.protocol import subjects
from gymq.protocol.codec import Decoder, encode
from gymq.protocol.messages import BlobRef, Failure, FailureClass, Stage, Submission, Task, VerifiedRollout
from gymq.protocol.subjects import RolloutId, TaskQueueName
from gymq.testing import prompt
from tests.support.waiting import DEADLINE_S, until_answer

from .conftest import DeadLetterCluster, badly


def without_verdict(_rollout: gymq.Rollout) -> None:
    raise gymq.RolloutError(FailureClass.JUDGE_FAILED, "the judge is ill", stage=Stage.VERIFY, retryable=False)


def failure(task: Task) -> Failure:
    return Failure(
        run=task.run,
        task_index=task.task_index,
        rollout_index=task.rollout_index,
        agent=task.agent,
        row=task.row,
        failure_class=FailureClass.MODEL_FAILED,
        stage=Stage.MODEL,
        message="the engine is out of order",
    )


async def taken(cluster: DeadLetterCluster, task: Task) -> tuple[Delivery, Pull]:
    """A task in the hands of an agent process that is about to die."""
    await cluster.stop_serving()
    arrived: asyncio.Queue[Delivery] = asyncio.Queue()
    queue = TaskQueueName("tasks", task.run, cluster.name)
    await streams.ensure_queue(cluster.js, queue, ack_wait_s=streams.ACK_WAIT_S)
    pull = Pull(cluster.bus, streams.TASKS, queue.consumer, arrived.put_nowait)
    await pull.start()
    await cluster.submit(task)
    await pull.ask(1)
    return await asyncio.wait_for(arrived.get(), DEADLINE_S), pull


async def test_a_failed_rollout_is_a_dead_letter_with_its_task(cluster: DeadLetterCluster, run: str) -> None:
    await cluster.fail(run)
    (entry,) = await cluster.dead_letters(run)
    letter = entry.letter
    assert letter.rollout == f"{run}/0/0"
    assert (letter.failure_class, letter.stage) == (FailureClass.AGENT_FAILED, Stage.AGENT)
    assert letter.reason == "the agent stumbled"
    assert letter.subject == subjects.TASK.of(run, cluster.name)
    assert await read_task(cluster.bus, letter.body) == cluster.task(run)


async def test_a_response_without_a_verdict_is_a_dead_letter(cluster: DeadLetterCluster, run: str) -> None:
    cluster.agent.end = without_verdict
    await cluster.submit(cluster.task(run))
    (entry,) = await cluster.dead_letters(run)
    assert (entry.letter.failure_class, entry.letter.stage) == (FailureClass.JUDGE_FAILED, Stage.VERIFY)


async def test_a_rollout_with_a_reward_is_no_dead_letter(cluster: DeadLetterCluster, run: str) -> None:
    await cluster.submit(cluster.task(run))
    await cluster.outcome(run)
    assert await cluster.dead_letters(run, 0) == []


async def test_a_cancelled_rollout_is_no_dead_letter(cluster: DeadLetterCluster, run: str) -> None:
    await cluster.stop_serving()
    await cluster.submit(cluster.task(run))
    await QueueClient(cluster.bus).cancel(run)
    await cluster.submit(cluster.task(run, 1))
    await cluster.serve()
    _, outcome = await cluster.outcome(run, 1)
    assert isinstance(outcome, Failure)
    assert outcome.failure_class is FailureClass.CANCELLED
    assert await cluster.dead_letters(run, 0) == []


async def test_a_cancelled_run_that_is_deleted_and_opened_again_is_rolled_out(
    cluster: DeadLetterCluster, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cancel, "STORING_S", 0.0)
    client = QueueClient(cluster.bus)
    await client.cancel(run)
    await client.submit(cluster.task(run))
    _, outcome = await cluster.outcome(run)
    assert isinstance(outcome, Failure)
    assert outcome.failure_class is FailureClass.CANCELLED
    await until_answer(lambda: client.num_queued(run), lambda number: not number)
    await streams.delete_run(cluster.js, run)
    await QueueClient(cluster.bus).submit(cluster.task(run))
    _, outcome = await cluster.outcome(run)
    assert isinstance(outcome, VerifiedRollout)


async def test_the_next_agent_stores_the_dead_letter_of_one_that_died_before(
    cluster: DeadLetterCluster, run: str
) -> None:
    task = cluster.task(run)
    delivery, pull = await taken(cluster, task)
    await cluster.outcomes.put(failure(task), replaces=None, patience_s=5.0)
    await pull.stop()
    await delivery.nak()
    await cluster.serve()
    (entry,) = await cluster.dead_letters(run)
    assert entry.letter.failure_class is FailureClass.MODEL_FAILED


async def test_an_agent_that_finds_a_failure_as_it_begins_stores_the_dead_letter_of_one_that_died(
    cluster: DeadLetterCluster, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = cluster.task(run)
    delivery, pull = await taken(cluster, task)
    look = OutcomeStore.is_settled

    async def before_the_failure(store: OutcomeStore, of: Task) -> bool:
        is_settled = await look(store, of)
        await cluster.outcomes.put(failure(task), replaces=None, patience_s=5.0)
        return is_settled

    monkeypatch.setattr(OutcomeStore, "is_settled", before_the_failure)
    await pull.stop()
    await delivery.nak()
    await cluster.serve()
    (entry,) = await cluster.dead_letters(run)
    assert entry.letter.failure_class is FailureClass.MODEL_FAILED


async def test_a_failure_whose_agent_died_afterwards_is_one_dead_letter(cluster: DeadLetterCluster, run: str) -> None:
    task = cluster.task(run)
    delivery, pull = await taken(cluster, task)
    await cluster.outcomes.put(failure(task), replaces=None, patience_s=5.0)
    await dead_letter_failure(cluster.bus, "agent", task, delivery.subject, delivery.data)
    await pull.stop()
    await delivery.nak()
    await cluster.serve()
    assert len(await cluster.dead_letters(run)) == 1


async def test_a_cancelled_task_that_comes_again_is_no_dead_letter(cluster: DeadLetterCluster, run: str) -> None:
    task = cluster.task(run)
    delivery, pull = await taken(cluster, task)
    await cluster.outcomes.put(cancelled_outcome(task), replaces=None, patience_s=5.0)
    await pull.stop()
    await delivery.nak()
    await cluster.serve()
    assert await cluster.dead_letters(run, 0) == []


async def test_a_task_that_was_delivered_too_often_is_a_dead_letter(cluster: DeadLetterCluster, run: str) -> None:
    delivery, pull = await taken(cluster, cluster.task(run))
    again: asyncio.Queue[Delivery] = asyncio.Queue()
    await pull.stop()
    pull = Pull(cluster.bus, streams.TASKS, TaskQueueName("tasks", run, cluster.name).consumer, again.put_nowait)
    await pull.start()
    for _ in range(1, streams.MAX_DELIVERIES):
        await delivery.nak()
        await pull.ask(1)
        delivery = await asyncio.wait_for(again.get(), DEADLINE_S)
    await delivery.nak()
    await pull.ask(1)
    (entry,) = await cluster.dead_letters(run)
    await pull.stop()
    assert (entry.letter.failure_class, entry.letter.stage) == (FailureClass.REDELIVERED_TOO_OFTEN, Stage.QUEUE)
    _, failure = await cluster.outcome(run)
    assert failure.attempt == 0  # a delivery is not an attempt
    assert await read_task(cluster.bus, entry.letter.body) == cluster.task(run)


async def test_a_task_larger_than_a_message_is_a_dead_letter_with_its_claim(
    cluster: DeadLetterCluster, run: str
) -> None:
    padding = secrets.token_urlsafe(cluster.bus.max_body_bytes)
    task = cluster.task(run, row={"padding": padding})
    cluster.agent.end = badly
    await cluster.submit(task)
    (entry,) = await cluster.dead_letters(run)
    assert isinstance(Decoder(BlobRef)(entry.letter.body), BlobRef)
    assert await read_task(cluster.bus, entry.letter.body) == task


async def test_a_body_that_fills_a_message_is_kept_whole(bus: Bus, run: str) -> None:
    body = os.urandom(bus.max_body_bytes)
    await store_dead_letter(
        bus, "intake", "gym.tasks", "no agent", body, sequence=secrets.randbits(40), of=RolloutId(run, 0, 0)
    )
    letters = DeadLetters(bus)
    (entry,) = [entry async for entry in letters.read(run)]
    assert await letters.body(entry.letter) == body


async def test_a_submission_without_an_agent_is_a_dead_letter_of_its_run(cluster: DeadLetterCluster, run: str) -> None:
    row = msgspec.Raw(msgspec.msgpack.encode(prompt("say done")))
    submission = Submission(run=run, row=row, agent="absent")
    await cluster.js.store(subjects.SUBMISSION.pattern, encode(submission))
    (entry,) = await cluster.dead_letters(run)
    assert entry.letter.subject == subjects.SUBMISSION.pattern
    assert "no agent named 'absent' is running" in entry.letter.reason
    assert Decoder(Submission)(entry.letter.body) == submission


async def test_what_nobody_can_read_belongs_to_no_run(cluster: DeadLetterCluster, run: str) -> None:
    subject = subjects.TASK.of(run, cluster.name)
    body = b"{ no task" + os.urandom(MAX_UNREADABLE_BYTES)
    await cluster.js.store(subject, body)
    async with asyncio.timeout(DEADLINE_S):
        found: list[Any] = []
        while not found:
            found = [entry async for entry in cluster.letters.read() if entry.letter.subject == subject]
    assert found[0].letter.reason.startswith("not a task: ")
    assert found[0].letter.body == body[:MAX_UNREADABLE_BYTES]
    assert await cluster.dead_letters(run, 0) == []


async def test_a_message_that_is_stored_twice_is_one_dead_letter(bus: Bus, run: str) -> None:
    sequence = secrets.randbits(40)
    for _ in range(2):
        await store_dead_letter(
            bus, "intake", "gym.tasks", "no agent", b"body", sequence=sequence, of=RolloutId(run, 0, 0)
        )
    assert len([entry async for entry in DeadLetters(bus).read(run)]) == 1


async def test_deleting_a_run_removes_its_letters_alone(bus: Bus, js: JetStream, run: str) -> None:
    for name in (run, f"{run}-other"):
        await store_dead_letter(
            bus, "intake", "gym.tasks", "no agent", b"body", sequence=secrets.randbits(40), of=RolloutId(name, 0, 0)
        )
    await streams.delete_run(js, run)
    letters = DeadLetters(bus)
    assert [entry async for entry in letters.read(run)] == []
    assert len([entry async for entry in letters.read(f"{run}-other")]) == 1
