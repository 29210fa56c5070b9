"""A viewer of the shared server, with outcomes that tests store themselves."""

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from gymq.ext.viewer import rollout_list, run_index
from gymq.ext.viewer.viewer import Viewer
from tests.cli.conftest import cluster as cluster
from tests.cli.conftest import finished_run as finished_run
from tests.cli.conftest import gymq as gymq
from tests.cli.conftest import here as here
from tests.support.browser import Page, browser
from tests.support.environments import Counter
from tests.support.ports import free_port
from tests.support.stored import Stored
from tests.support.stored import failure as failure
from tests.support.stored import rollout as rollout
from tests.support.stored import world as world
from tests.support.world import HOST, World


class Web(Stored):
    """The page's side of a viewer, and the other side of its store."""

    def __init__(self, world: World, session: aiohttp.ClientSession, viewer: Viewer | None = None) -> None:
        super().__init__(world)
        self.viewer = viewer
        self.session = session

    @property
    def url(self) -> str:
        return f"{self.world.head}/ui/"

    async def get(self, path: str, **query: Any) -> Any:
        async with self.session.get(f"{self.url}api/{path}", params=query) as answer:
            body = await answer.json()
            assert answer.status == 200, body
            return body

    async def status(self, path: str, **query: Any) -> tuple[int, str]:
        async with self.session.get(f"{self.url}api/{path}", params=query) as answer:
            return answer.status, (await answer.json())["error"]["message"]

    async def events(self, path: str) -> AsyncGenerator[tuple[str, Any]]:
        """The events of a stream until it ends."""
        name = ""
        async with self.session.get(f"{self.url}api/{path}") as answer:
            assert answer.status == 200, await answer.text()
            async for line in answer.content:
                if line.startswith(b"event: "):
                    name = line[7:].decode().strip()
                elif line.startswith(b"data: "):
                    yield name, json.loads(line[6:])


@pytest.fixture(autouse=True)
def enough_time_to_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """One request reads a whole run, however busy the machine is."""
    monkeypatch.setattr(run_index, "READ_S", 60.0)
    monkeypatch.setattr(rollout_list, "SEARCH_S", 60.0)


@asynccontextmanager
async def viewer_of(world: World) -> AsyncIterator[Web]:
    port = free_port(HOST)
    world.head = f"http://{HOST}:{port}"
    viewer = Viewer(world.bus, HOST, port, may_change=True)
    async with viewer, aiohttp.ClientSession() as session:
        yield Web(world, session, viewer)


@pytest.fixture
async def web(world: World) -> AsyncIterator[Web]:
    """A viewer of a store without workers."""
    async with viewer_of(world) as made:
        yield made


@pytest.fixture
async def working(world: World) -> AsyncIterator[Web]:
    """A bridge, with its viewer, and an agent whose model answers when the test lets it."""
    await world.add_model()
    await world.add_resources("counter", Counter())
    await world.add_agent("adder", "counter")
    await world.start_bridge()
    async with aiohttp.ClientSession() as session:
        yield Web(world, session)


@pytest.fixture
async def page() -> AsyncIterator[Page]:
    async with browser() as opened:
        yield opened
