"""A copy of the store is a backup: see docs/operations.md."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from gymq.bus import Bus, streams
from gymq.cluster.server import EmbeddedServer
from gymq.protocol import subjects


@asynccontextmanager
async def running(store: Path) -> AsyncIterator[Bus]:
    """A connection to a server on a store."""
    async with EmbeddedServer(store) as server, await Bus.connect(server.url, role="test", name="test") as bus:
        yield bus


async def test_a_copy_of_a_stopped_store_has_everything(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as bus:
        await streams.ensure(bus.js, ["agent"])
        for subject in (subjects.RUN.of("r"), subjects.TASK.of("r", "agent")):
            await bus.js.store(subject, subject.encode())
    shutil.copytree(tmp_path / "store", tmp_path / "backup")
    shutil.rmtree(tmp_path / "store")
    shutil.copytree(tmp_path / "backup", tmp_path / "store")
    async with running(tmp_path / "store") as bus:
        for stream, subject in (
            (streams.RUNS, subjects.RUN.of("r")),
            (streams.TASKS, subjects.TASK.of("r", "agent")),
        ):
            stored = await bus.js.last(stream, subject)
            assert stored is not None
            assert stored.data == subject.encode()
        assert await streams.has_agent(bus.js, "agent")
