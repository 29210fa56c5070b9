"""Trainers without an event loop."""

import asyncio
import threading

import pytest

from gymq.data.rows import RowError
from gymq.errors import UsageError
from gymq.trainer import TrainingRun
from gymq.trainer.sync import SyncTrainingRun
from tests.support.engine import Body, say
from tests.support.waiting import until
from tests.support.world import World

from .conftest import Examples


async def test_groups_come_without_an_event_loop(world: World, run: str, examples: Examples) -> None:
    def train() -> list[int]:
        with SyncTrainingRun(world.url, run, model=world.name("policy")) as training:
            return sorted(group.task_index for group in training.run_rollouts(examples(3), num_samples=2))

    assert await asyncio.to_thread(train) == [0, 1, 2]


async def test_errors_come_through(world: World, run: str) -> None:
    def train() -> None:
        with SyncTrainingRun(world.url, run) as training:
            list(training.run_rollouts([{}]))

    with pytest.raises(RowError, match="examples:1"):
        await asyncio.to_thread(train)


async def test_who_leaves_the_loop_may_continue_with_other_rows(world: World, run: str, examples: Examples) -> None:
    def train() -> int:
        with SyncTrainingRun(world.url, run) as training:
            first = training.run_rollouts(examples(4))
            next(first)
            first.close()
            return len(list(training.run_rollouts(examples(4))))

    assert await asyncio.to_thread(train) == 4


async def test_a_program_that_blocks_its_event_loop_holds_up_nothing(
    world: World, run: str, examples: Examples
) -> None:
    may_go_on = threading.Event()

    async def train() -> list[int]:
        training = await TrainingRun.connect(world.url, run, model=world.name("policy"))
        try:
            batch = training.run_rollouts(examples(2), num_samples=2)
            assert may_go_on.wait(300)  # as `loss.backward()` does
            return sorted([len(group.samples) async for group in batch])
        finally:
            await training.close()

    training = asyncio.create_task(asyncio.to_thread(asyncio.run, train()))
    try:
        await until(lambda: len(world.engine.requests) == 4)
    finally:
        may_go_on.set()
    assert await training == [2, 2]


async def test_whoever_waits_learns_that_the_run_was_closed(
    training: TrainingRun, world: World, examples: Examples
) -> None:
    world.engine.turn = lambda body: asyncio.Event().wait()
    waiting = asyncio.create_task(anext(aiter(training.run_rollouts(examples(1)))))
    await until(lambda: world.engine.requests)
    await training.close()
    for late in (waiting, training.pause()):
        with pytest.raises(UsageError, match="the run was closed"):
            await late


async def test_rollouts_run_while_no_caller_iterates(world: World, run: str, examples: Examples) -> None:
    may_iterate = threading.Event()

    def train() -> int:
        with SyncTrainingRun(world.url, run, model=world.name("policy")) as training:
            groups = training.run_rollouts(examples(2))
            may_iterate.wait()
            return len(list(groups))

    training = asyncio.create_task(asyncio.to_thread(train))
    try:
        await until(lambda: len(world.engine.requests) == 2)
    finally:
        may_iterate.set()
        num_groups = await training
    assert num_groups == 2


async def test_groups_of_a_run_that_is_closed_are_an_error_and_leaving_them_is_none(
    world: World, run: str, examples: Examples
) -> None:
    def train() -> None:
        with SyncTrainingRun(world.url, run, model=world.name("policy")) as training:
            left, continued, waiting = (training.run_rollouts(examples(2)) for _ in range(3))
            next(left)
            next(continued)
        left.close()
        for groups in (continued, waiting):
            with pytest.raises(UsageError, match="the run was closed"):
                next(groups)
        with pytest.raises(UsageError, match="the run was closed"):
            training.pause()
        training.close()

    await asyncio.to_thread(train)


async def test_a_run_that_another_thread_closes_waits_no_longer(world: World, run: str, examples: Examples) -> None:
    async def turn(body: Body) -> Body:
        await asyncio.Event().wait()
        return say("never")

    world.engine.turn = turn
    training = await asyncio.to_thread(SyncTrainingRun, world.url, run, model=world.name("policy"))
    waiting = asyncio.create_task(asyncio.to_thread(next, training.run_rollouts(examples(1))))
    await until(lambda: world.engine.requests)
    await asyncio.to_thread(training.close)
    with pytest.raises(UsageError, match="the run was closed"):
        await waiting
