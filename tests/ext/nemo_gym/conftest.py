"""A world of workers for each test, over one NATS server for all of them. The tests run on uvloop, as bridges do."""

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pytest
import uvloop

from tests.cli.conftest import gymq as gymq
from tests.cli.conftest import here as here
from tests.support.world import Client, World, new_client
from tests.support.worlds import empty_world as empty_world
from tests.support.worlds import quick as quick
from tests.support.worlds import world as world


def pytest_asyncio_loop_factories(config: Any, item: Any) -> Mapping[str, Callable[[], Any]]:
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
async def client(world: World) -> AsyncIterator[Client]:
    """A client of a bridge with the settings that most tests want."""
    await world.start_bridge()
    async with new_client(world) as made:
        yield made
