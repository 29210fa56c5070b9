"""Rounds: what comes by the thousand leaves the event loop time for everything else."""

import asyncio
import math
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from gymq.bus.rpc import loop_fairness
from gymq.bus.rpc.loop_fairness import Starter, Turns


class Clock:
    """Counts the rounds of the event loop while a test runs."""

    def __init__(self) -> None:
        self.round = 0
        self.handle = asyncio.get_running_loop().call_soon(self._tick)

    def _tick(self) -> None:
        self.round += 1
        self.handle = asyncio.get_running_loop().call_soon(self._tick)


@pytest.fixture
async def clock() -> AsyncIterator[Clock]:
    running = Clock()
    yield running
    running.handle.cancel()


async def rounds_of_starts(clock: Clock, count: int) -> list[int]:
    """In which round each of so many things was started."""
    started: list[int] = []

    def start_one() -> bool:
        if len(started) == count:
            return False
        started.append(clock.round)
        return True

    starter = Starter(start_one)
    for _ in range(count):
        starter.schedule()
    while len(started) < count:  # noqa: ASYNC110
        await asyncio.sleep(0)
    return started


async def test_in_slow_rounds_one_thing_is_started_in_each(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    monkeypatch.setattr(loop_fairness, "SLOW_ROUND_S", -1.0)
    started = await rounds_of_starts(clock, 50)
    assert len(set(started)) == 50


async def test_in_fast_rounds_many_things_are_started_in_each(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    monkeypatch.setattr(loop_fairness, "SLOW_ROUND_S", math.inf)
    started = await rounds_of_starts(clock, 1000)
    assert max(Counter(started).values()) == loop_fairness.MOST_STARTED
    assert len(set(started)) < 1000 / loop_fairness.MOST_STARTED + math.log2(loop_fairness.MOST_STARTED) + 1


async def test_what_becomes_possible_later_is_started_when_told(clock: Clock) -> None:
    possible: list[int] = []
    started: list[int] = []

    def start_one() -> bool:
        if not possible:
            return False
        started.append(possible.pop())
        return True

    starter = Starter(start_one)
    for number in range(3):
        possible.append(number)
        starter.schedule()
        while possible:  # noqa: ASYNC110
            await asyncio.sleep(0)
    assert started == [0, 1, 2]


async def test_tasks_that_wake_at_once_compute_in_rounds_of_their_own(clock: Clock) -> None:
    turns = Turns()
    go = asyncio.Event()
    computed: list[int] = []

    async def compute() -> None:
        await go.wait()
        async with turns.take():
            computed.append(clock.round)

    async with asyncio.TaskGroup() as group:
        for _ in range(100):
            group.create_task(compute())
        await asyncio.sleep(0)
        go.set()
    assert len(set(computed)) == 100
