"""Workers on a bus, as for the tests of the bridge."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from gymq.bus import Bus
from tests.cli.conftest import gymq as gymq

from ..bridge.environments import Counter, Grader
from ..bridge.world import World


@pytest.fixture(autouse=True)
def quick(short_pauses: None) -> None:
    """What is tried again costs no test its time."""


@pytest.fixture
async def world(shared_url: str, bus: Bus) -> AsyncIterator[World]:
    """A model in front of a scripted engine, and two environments. No agents yet, and no bridge."""
    async with AsyncExitStack() as stack:
        world = World(shared_url, bus, stack)
        await world.start()
        await world.add_model()
        await world.add_resources("counter", Counter())
        await world.add_resources("grader", Grader())
        yield world
