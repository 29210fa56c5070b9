"""What the tests of the runtime share. They run on uvloop, as worker processes do."""

import importlib
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import uvloop

from gymq.bus import Bus
from gymq.cluster.server import EmbeddedServer
from gymq.processes import KillableProcesses

Connect = Callable[[str], Awaitable[Bus]]


def pytest_asyncio_loop_factories(config: Any, item: Any) -> Mapping[str, Callable[[], Any]]:
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Connects to a URL; closed when the test ends."""
    connected = []

    async def new(url: str) -> Bus:
        bus = await Bus.connect(url, role="test", name="test")
        connected.append(bus)
        return bus

    yield new
    for bus in connected:
        await bus.close()


@pytest.fixture
async def other_bus(shared_url: str, connect: Connect) -> Bus:
    """A second connection to the shared server."""
    return await connect(shared_url)


@pytest.fixture
async def own_bus(own_server: EmbeddedServer, connect: Connect) -> Bus:
    """A connection to the server that the test may kill."""
    return await connect(own_server.url)


@pytest.fixture
def kill_server(own_server: EmbeddedServer) -> Callable[[], Awaitable[None]]:
    async def kill() -> None:
        os.kill(own_server.pid, signal.SIGKILL)
        await own_server.wait()

    return kill


@pytest.fixture(scope="session")
def authors() -> Iterator[Any]:
    """The module `process_authors`, which processes find by its name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).parent)
        yield importlib.import_module("process_authors")


@pytest.fixture(scope="session")
def processes(authors: Any) -> Iterator[KillableProcesses]:
    """One pool for many tests: starting one takes longer than anything it does."""
    pool = KillableProcesses(2)
    yield pool
    pool.close()
