"""A viewer of the shared server, with outcomes that tests store themselves."""

import json
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import aiohttp
import pytest

from gymq.bus import Bus
from gymq.bus.queue.outcome_store import OutcomeStore
from gymq.execution.services.profiler import Profiler
from gymq.ext.viewer import rollout_list, run_index
from gymq.ext.viewer.viewer import Viewer
from gymq.protocol import subjects
from gymq.protocol.codec import encode
from gymq.protocol.messages import Failure, FailureClass, Outcome, Run, Stage, VerifiedRollout
from gymq.testing import reply
from tests.cli.conftest import cluster as cluster
from tests.cli.conftest import finished_run as finished_run
from tests.cli.conftest import gymq as gymq
from tests.cli.conftest import here as here
from tests.support.environments import Counter
from tests.support.ports import free_port
from tests.support.world import HOST, World


class Web:
    """The page's side of a viewer, and the other side of its store."""

    def __init__(self, world: World, session: aiohttp.ClientSession, viewer: Viewer | None = None) -> None:
        self.world = world
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

    async def store(self, *outcomes: Outcome) -> None:
        store = OutcomeStore(self.world.bus)
        for outcome in outcomes:
            assert await store.put(outcome, replaces=None, patience_s=30.0)

    async def announce(self, run: str, **members: Any) -> None:
        record = encode(Run(run=run, created_at=time.time(), **members))
        await self.world.bus.js.store(subjects.run_record(run), record)

    async def profile(self) -> None:
        """Bring the checkpoints of all runs up to date, as the profiler does once a second."""
        profiler = Profiler(self.world.bus)
        await profiler._read_new()


def rollout(
    run: str, task: int, index: int = 0, *, text: str = "Bern", reward: float = 1.0, **members: Any
) -> VerifiedRollout:
    row = members.pop("row", {"answer": "Bern", "responses_create_params": {"input": f"question {task}"}})
    response = members.pop("response", None) or reply(text)
    given: dict[str, Any] = {"agent": "asker", "duration_s": 1.0, "started_at": 1.7e9, **members}
    where: dict[str, Any] = {"run": run, "task_index": task, "rollout_index": index}
    return VerifiedRollout(**where, row=json.dumps(row).encode(), response=response, reward=reward, **given)


def failure(run: str, task: int, index: int = 0, *, message: str = "no GPU", **members: Any) -> Failure:
    given = {"agent": "asker", "failure_class": FailureClass.MODEL_FAILED, "stage": Stage.MODEL, **members}
    return Failure(run=run, task_index=task, rollout_index=index, row=b"{}", message=message, **given)


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
async def world(shared_url: str, bus: Bus) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        made = World(shared_url, bus, stack)
        await made.start()
        yield made


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
