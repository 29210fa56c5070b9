"""Fixtures: workers on a bus, for the tests of what stands in front of them."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from gymq.bus import Bus

from .environments import Counter, Grader
from .world import World


@pytest.fixture(autouse=True)
def quick(short_pauses: None) -> None:
    """What is tried again costs no test its time."""


@pytest.fixture
async def empty_world(shared_url: str, bus: Bus) -> AsyncIterator[World]:
    """No workers yet, and no bridge."""
    async with AsyncExitStack() as stack:
        world = World(shared_url, bus, stack)
        await world.start()
        yield world


@pytest.fixture
async def world(empty_world: World) -> World:
    """A model in front of the scripted engine, two environments, an agent for each. No bridge yet."""
    await empty_world.add_model()
    await empty_world.add_resources("grader", Grader())
    await empty_world.add_resources("counter", Counter())
    await empty_world.add_agent("asker", "grader")
    await empty_world.add_agent("adder", "counter")
    return empty_world
