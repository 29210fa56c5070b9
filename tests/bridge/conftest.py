"""A world of workers for each test, over one NATS server for all of them. The tests run on uvloop, as bridges do."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any

import pytest
import uvloop

from gymq.bus import Bus

from .environments import Counter, Grader
from .world import Client, World, new_client


def pytest_asyncio_loop_factories(config: Any, item: Any) -> Mapping[str, Callable[[], Any]]:
    return {"uvloop": uvloop.new_event_loop}


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


@pytest.fixture
async def client(world: World) -> AsyncIterator[Client]:
    """A client of a bridge with the settings that most tests want."""
    await world.start_bridge()
    async with new_client(world) as made:
        yield made
