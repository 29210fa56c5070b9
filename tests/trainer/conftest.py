"""A world of workers for each test, and a training run on it."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from gymq.bus import Bus
from gymq.trainer import TrainingRun
from tests.bridge.world import World, grading_world

Row = dict[str, Any]
Examples = Callable[..., list[Row]]


@pytest.fixture
async def world(shared_url: str, bus: Bus) -> AsyncIterator[World]:
    """A model in front of a scripted engine, a verifier, an agent."""
    async with grading_world(shared_url, bus) as made:
        yield made


@pytest.fixture
async def training(world: World, run: str) -> AsyncIterator[TrainingRun]:
    made = await TrainingRun.connect(world.url, run, model=world.name("policy"))
    yield made
    await made.close()


@pytest.fixture
def examples(world: World) -> Examples:
    """So many examples, `say N` with task index N; `members` go into each."""

    def make(count: int, *, first: int = 0, **members: Any) -> list[Row]:
        return [world.row(f"say {at}", _ng_task_index=at, **members) for at in range(first, first + count)]

    return make
