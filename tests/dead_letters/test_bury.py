"""What is given up is buried once, with all that a person needs to understand it."""

import asyncio
import os
import secrets

import msgspec

import gymq
from gymq import streams, subjects
from gymq.bus import Bus
from gymq.cancel import cancel, cancelled_outcome
from gymq.dead_letters import MAX_UNREADABLE_BYTES, DeadLetters, bury, bury_failure
from gymq.jetstream import Delivery, JetStream, Pull
from gymq.messages import Claim, Failure, FailureClass, Stage, Submission, Task, decoder, encode
from gymq.tasks import read_task
from gymq.testing import prompt

from .conftest import Workshop, badly


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


async def taken(workshop: Workshop, task: Task) -> tuple[Delivery, Pull]:
    """A task in the hands of an agent process that is about to die."""
    await workshop.stop_serving()
    arrived: asyncio.Queue[Delivery] = asyncio.Queue()
    pull = Pull(workshop.bus, streams.TASKS, streams.agent_consumer(workshop.name), arrived.put_nowait)
    await pull.start()
    await workshop.submit(task)
    await pull.ask(1)
    return await asyncio.wait_for(arrived.get(), 10), pull


async def test_a_failed_rollout_is_buried_with_its_task(workshop: Workshop, run: str) -> None:
    await workshop.fail(run)
    (buried,) = await workshop.buried(run)
    letter = buried.letter
    assert letter.rollout == f"{run}/0/0"
    assert (letter.failure_class, letter.stage) == (FailureClass.AGENT_FAILED, Stage.AGENT)
    assert letter.reason == "the agent stumbled"
    assert letter.subject == subjects.tasks(run, workshop.name)
    assert await read_task(workshop.bus, letter.body) == workshop.task(run)


async def test_a_response_without_a_verdict_is_buried(workshop: Workshop, run: str) -> None:
    workshop.agent.end = without_verdict
    await workshop.submit(workshop.task(run))
    (buried,) = await workshop.buried(run)
    assert (buried.letter.failure_class, buried.letter.stage) == (FailureClass.JUDGE_FAILED, Stage.VERIFY)


async def test_a_rollout_with_a_reward_is_not_buried(workshop: Workshop, run: str) -> None:
    await workshop.submit(workshop.task(run))
    await workshop.outcome(run)
    assert await workshop.buried(run, 0) == []


async def test_a_cancelled_rollout_is_not_buried(workshop: Workshop, run: str) -> None:
    await workshop.stop_serving()
    await workshop.submit(workshop.task(run))
    await cancel(workshop.bus, run)
    await workshop.submit(workshop.task(run, 1))
    await workshop.serve()
    _, outcome = await workshop.outcome(run, 1)
    assert isinstance(outcome, Failure)
    assert outcome.failure_class is FailureClass.CANCELLED
    assert await workshop.buried(run, 0) == []


async def test_a_failure_whose_agent_died_before_burying_it_is_buried_by_the_next(workshop: Workshop, run: str) -> None:
    task = workshop.task(run)
    delivery, pull = await taken(workshop, task)
    await workshop.outcomes.put(failure(task), replaces=None, patience_s=5.0)
    await pull.stop()
    await delivery.nak()
    await workshop.serve()
    (buried,) = await workshop.buried(run)
    assert buried.letter.failure_class is FailureClass.MODEL_FAILED


async def test_a_failure_whose_agent_died_after_burying_it_is_not_buried_twice(workshop: Workshop, run: str) -> None:
    task = workshop.task(run)
    delivery, pull = await taken(workshop, task)
    await workshop.outcomes.put(failure(task), replaces=None, patience_s=5.0)
    await bury_failure(workshop.bus, "agent", task, delivery.subject, delivery.data)
    await pull.stop()
    await delivery.nak()
    await workshop.serve()
    assert len(await workshop.buried(run)) == 1


async def test_a_cancelled_task_that_comes_again_is_not_buried(workshop: Workshop, run: str) -> None:
    task = workshop.task(run)
    delivery, pull = await taken(workshop, task)
    await workshop.outcomes.put(cancelled_outcome(task), replaces=None, patience_s=5.0)
    await pull.stop()
    await delivery.nak()
    await workshop.serve()
    assert await workshop.buried(run, 0) == []


async def test_a_task_that_was_delivered_too_often_is_buried(workshop: Workshop, run: str) -> None:
    delivery, pull = await taken(workshop, workshop.task(run))
    again: asyncio.Queue[Delivery] = asyncio.Queue()
    await pull.stop()
    pull = Pull(workshop.bus, streams.TASKS, streams.agent_consumer(workshop.name), again.put_nowait)
    await pull.start()
    for _ in range(1, streams.MAX_DELIVERIES):
        await delivery.nak()
        await pull.ask(1)
        delivery = await asyncio.wait_for(again.get(), 10)
    await delivery.nak()
    await pull.ask(1)
    (buried,) = await workshop.buried(run)
    await pull.stop()
    assert (buried.letter.failure_class, buried.letter.stage) == (FailureClass.REDELIVERED_TOO_OFTEN, Stage.QUEUE)
    assert await read_task(workshop.bus, buried.letter.body) == workshop.task(run)


async def test_a_task_larger_than_a_message_is_buried_as_its_claim(workshop: Workshop, run: str) -> None:
    padding = secrets.token_urlsafe(workshop.bus.max_body_bytes)
    task = workshop.task(run, row={"padding": padding})
    workshop.agent.end = badly
    await workshop.submit(task)
    (buried,) = await workshop.buried(run)
    assert isinstance(decoder(Claim)(buried.letter.body), Claim)
    assert await read_task(workshop.bus, buried.letter.body) == task


async def test_a_body_that_fills_a_message_is_kept_whole(bus: Bus, run: str) -> None:
    body = os.urandom(bus.max_body_bytes)
    await bury(bus, "intake", "gym.tasks", "no agent", body, sequence=secrets.randbits(40), of=(run, 0, 0))
    letters = DeadLetters(bus)
    (buried,) = [buried async for buried in letters.read(run)]
    assert await letters.body(buried.letter) == body


async def test_a_submission_that_nobody_serves_is_buried_under_its_run(workshop: Workshop, run: str) -> None:
    row = msgspec.Raw(msgspec.msgpack.encode(prompt("say done")))
    submission = Submission(run=run, row=row, agent="nobody")
    await workshop.js.store(subjects.SUBMIT, encode(submission))
    (buried,) = await workshop.buried(run)
    assert buried.letter.subject == subjects.SUBMIT
    assert "no agent named 'nobody' is running" in buried.letter.reason
    assert decoder(Submission)(buried.letter.body) == submission


async def test_what_nobody_can_read_belongs_to_no_run(workshop: Workshop, run: str) -> None:
    subject = subjects.tasks(run, workshop.name)
    body = b"{ no task" + os.urandom(MAX_UNREADABLE_BYTES)
    await workshop.js.store(subject, body)
    async with asyncio.timeout(10):
        found = []
        while not found:
            found = [buried async for buried in workshop.letters.read() if buried.letter.subject == subject]
    assert found[0].letter.reason.startswith("not a task: ")
    assert found[0].letter.body == body[:MAX_UNREADABLE_BYTES]
    assert await workshop.buried(run, 0) == []


async def test_a_message_that_is_buried_twice_is_one_letter(bus: Bus, run: str) -> None:
    sequence = secrets.randbits(40)
    for _ in range(2):
        await bury(bus, "intake", "gym.tasks", "no agent", b"body", sequence=sequence, of=(run, 0, 0))
    assert len([buried async for buried in DeadLetters(bus).read(run)]) == 1


async def test_deleting_a_run_removes_its_letters_alone(bus: Bus, js: JetStream, run: str) -> None:
    for name in (run, f"{run}-other"):
        await bury(bus, "intake", "gym.tasks", "no agent", b"body", sequence=secrets.randbits(40), of=(name, 0, 0))
    await streams.delete_run(js, run)
    letters = DeadLetters(bus)
    assert [buried async for buried in letters.read(run)] == []
    assert len([buried async for buried in letters.read(f"{run}-other")]) == 1
