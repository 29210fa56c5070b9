"""A trainer pauses, resumes, retunes and cancels its run, and another process finds it as it was left."""

import asyncio

import pytest

from gymq.bus import Bus
from gymq.bus.queue.steering import read_steering
from gymq.errors import UsageError
from gymq.protocol.messages import Priority
from gymq.trainer import TrainingRun
from gymq.trainer.groups import Group
from gymq.trainer.sync import SyncTrainingRun
from tests.support.environments import Grader
from tests.support.waiting import until_answer
from tests.support.world import World

from .conftest import Examples


def collecting(training: TrainingRun, rows: list[dict[str, object]]) -> asyncio.Task[list[Group]]:
    async def groups() -> list[Group]:
        return [group async for group in training.run_rollouts(rows)]

    return asyncio.create_task(groups())


async def test_a_paused_run_begins_nothing_until_another_trainer_resumes_it(
    training: TrainingRun, world: World, examples: Examples
) -> None:
    await training.pause()
    waiting = collecting(training, examples(3))
    await until_answer(world.queued, lambda queued: queued == 3)
    # An agent that starts later knows it too; another run goes past this one.
    await world.add_resources("late_grader", Grader())
    await world.add_agent("late", "late_grader")
    other = await TrainingRun.connect(world.url, f"{training.run}-other", model=training.model)
    beside = [{**row, "agent_ref": {"name": world.name("late")}} for row in examples(2)]
    assert [group.rewards async for group in other.run_rollouts(beside)] == [[1.0], [1.0]]
    await other.close()
    late = [{**row, "agent_ref": {"name": world.name("late")}} for row in examples(2, first=10)]
    waiting_late = collecting(training, late)
    await until_answer(world.queued, lambda queued: queued == 5)
    assert len(world.engine.requests) == 2
    waiting.cancel()
    restarted = await TrainingRun.connect(world.url, training.run, model=training.model)
    await restarted.resume()
    again = [group async for group in restarted.run_rollouts(examples(3))]
    assert [group.rewards for group in again] == [[1.0]] * 3
    assert [group.rewards for group in await waiting_late] == [[1.0]] * 2
    await restarted.close()


async def test_what_is_retuned_is_stored_and_the_rest_stays(training: TrainingRun, bus: Bus) -> None:
    await training.retune(share=4, priority="urgent")
    steering = await training.retune(max_in_flight=2)
    assert steering == await read_steering(bus, training.run)
    assert (steering.share, steering.priority, steering.max_in_flight) == (4.0, Priority.URGENT, 2)
    assert (await training.retune(max_in_flight=None)).max_in_flight is None


@pytest.mark.parametrize(
    ("changes", "text"),
    [({"share": 0}, "share"), ({"priority": "high"}, "priority"), ({"max_in_flight": -1}, "max_in_flight")],
)
async def test_a_change_that_is_not_one_is_refused(
    training: TrainingRun, bus: Bus, changes: dict[str, object], text: str
) -> None:
    with pytest.raises(UsageError, match=text):
        await training.retune(**changes)
    with pytest.raises(UsageError, match="paused"):
        await training.retune(paused=True)
    assert await read_steering(bus, training.run) is None


async def test_a_cancelled_run_gives_its_groups_without_samples(training: TrainingRun, examples: Examples) -> None:
    await training.pause()
    waiting = collecting(training, examples(2))
    await until_answer(lambda: _queued(training), lambda queued: queued == 2)
    await training.cancel()
    groups = await waiting
    assert [group.samples for group in groups] == [[], []]
    assert {failure.failure_class for group in groups for failure in group.failures} == {"cancelled"}


async def _queued(training: TrainingRun) -> int:
    async def count() -> int:
        return sum([1 async for _ in training._queue.queued(training.run)])

    assert training.thread is not None
    return await training.thread.call(count())


async def test_a_program_without_an_event_loop_steers_too(world: World, run: str, bus: Bus) -> None:
    def steer() -> tuple[float, int]:
        with SyncTrainingRun(world.url, run, model=world.name("policy")) as training:
            training.pause()
            share = training.retune(share=2).share
            training.resume()
            return share, training.cancel()

    assert await asyncio.to_thread(steer) == (2.0, 0)
    steering = await read_steering(bus, run)
    assert steering is not None
    assert not steering.paused
