"""What is stored in this folder, wherever it can be read now: at a cluster, at a server of our own, or in a copy."""

from __future__ import annotations

import asyncio
import functools
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple, NoReturn, Protocol

from gymq.bus import Bus, streams
from gymq.bus.credentials import VIEWER
from gymq.bus.jetstream import Code, JetStreamError
from gymq.cli.shared.cluster import STORE
from gymq.cluster.server import EmbeddedServer, find_running, is_gone, silent_owner
from gymq.cluster.server.store import Store
from gymq.errors import GymqError, UsageError
from gymq.execution.services.profiler import Profiler

LOOK_EVERY_S = 0.5
NAME = "gymq view"


class StoreBus(NamedTuple):
    """A bus with the stored runs."""

    bus: Bus
    until_left: Callable[[], Awaitable[None]]  # waits until they have to be read elsewhere
    has_workers: bool = False
    is_copy: bool = False


class Show(Protocol):
    def __call__(self, bus: Bus, *, has_workers: bool, is_copy: bool) -> None: ...


class FollowedStore:
    """Finds a bus with the runs of this folder, again and again, while clusters come and go in it.

    A server of our own gives way to a cluster. While the server of a cluster has the store and is silent, what it had
    stored is read from a copy.

    Attributes:
        notice: a sentence about the cluster for whoever reads the runs; empty when all is well.
    """

    def __init__(self) -> None:
        self.notice = ""
        self._store = Store(STORE)
        self._silent_since: float | None = None

    async def follow(self, show: Show, leave: Callable[[], None]) -> NoReturn:
        """Follow the store for ever; what goes wrong is reported, and tried again.

        Args:
            show: called with each bus.
            leave: called before that bus is closed.
        """
        while True:
            try:
                async with AsyncExitStack() as stack:
                    source = await self._open(stack)
                    show(source.bus, has_workers=source.has_workers, is_copy=source.is_copy)
                    stack.callback(leave)
                    await source.until_left()
            except (GymqError, OSError) as error:
                self.notice = str(error).partition("\n")[0]
                await asyncio.sleep(LOOK_EVERY_S)

    async def _open(self, stack: AsyncExitStack) -> StoreBus:
        while True:
            if (url := await find_running(STORE, for_reading=True)) is not None:
                bus = await stack.enter_async_context(_bus(url))
                await _until_made(bus)
                self._note_answer()
                record = self._store.read_record()
                is_viewer = record is not None and record.gives_way  # the server of another one
                until_silent = functools.partial(self._until_silent, bus, url)
                return StoreBus(bus, until_silent, has_workers=not is_viewer)
            if not await self._is_taken():
                self._note_answer()
                return await (self._serve_store(stack) if STORE.is_dir() else self._serve_copy(stack))
            if self._has_waited_long():
                return await self._serve_copy(stack)
            await asyncio.sleep(LOOK_EVERY_S)

    async def _serve_store(self, stack: AsyncExitStack) -> StoreBus:
        server = await stack.enter_async_context(EmbeddedServer(STORE, gives_way=True))
        bus = await stack.enter_async_context(_profiled_bus(server))

        async def until_wanted() -> None:
            wanted = asyncio.ensure_future(server.wanted())
            try:
                while not (await asyncio.wait({wanted}, timeout=LOOK_EVERY_S))[0]:
                    if await find_running(STORE, for_reading=True) == server.url:
                        self._note_answer()
                    elif not bus.is_connected or self._has_waited_long():  # it crashed, or is frozen
                        return
            finally:
                wanted.cancel()

        return StoreBus(bus, until_wanted)

    async def _serve_copy(self, stack: AsyncExitStack) -> StoreBus:
        """Serve a copy of the store; an empty one if there is none yet."""
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gymq-view-")))
        if STORE.is_dir():
            if shutil.disk_usage(folder).free < 2 * self._store.used_bytes():
                raise UsageError(f"{folder.parent} has no room for a copy of the runs, so they cannot be shown now")
            await asyncio.to_thread(shutil.copytree, STORE / "jetstream", folder / "jetstream" / "jetstream")
        server = await stack.enter_async_context(EmbeddedServer(folder / "jetstream"))
        return StoreBus(await stack.enter_async_context(_profiled_bus(server)), self._until_back, is_copy=True)

    async def _until_silent(self, bus: Bus, url: str) -> None:
        """Wait until the server of a cluster is gone, or has been silent for too long."""
        while bus.is_connected or not is_gone(STORE, url):
            if await find_running(STORE, for_reading=True) == url:
                self._note_answer()
            elif await silent_owner(STORE) is None or self._has_waited_long():
                return
            await asyncio.sleep(LOOK_EVERY_S)

    async def _until_back(self) -> None:
        """Wait until the store can be read again; one that does not exist, until it does."""
        if not STORE.is_dir():
            while not STORE.is_dir():  # noqa: ASYNC110
                await asyncio.sleep(LOOK_EVERY_S)
            return
        while await self._is_taken() and await find_running(STORE, for_reading=True) is None:
            self._has_waited_long()
            await asyncio.sleep(LOOK_EVERY_S)

    async def _is_taken(self) -> bool:
        """Return whether a cluster has the store, or waits for it."""
        return self._store.is_wanted() or await silent_owner(STORE) is not None

    def _note_answer(self) -> None:
        self._silent_since = None
        self.notice = ""

    def _has_waited_long(self) -> bool:
        """Report that the cluster is silent, and return whether it has been for so long that a copy is better."""
        now = time.monotonic()
        if self._silent_since is None:
            self._silent_since = now
        silent_s = now - self._silent_since
        if self._store.read_record() is None or silent_s < 5.0:
            self.notice = "a cluster is starting or stopping in this folder"
            return False
        silence = f"the NATS server of this folder has not answered for {silent_s:.0f} s"
        self.notice = f"{silence}; shown is what was stored before that"
        return True


async def _until_made(bus: Bus) -> None:
    """Wait until a cluster that has just been started has made all its streams."""
    for name in streams.stream_configs():
        while True:
            try:
                await bus.js.api(f"STREAM.INFO.{name}")
                break
            except JetStreamError as error:
                if error.code != Code.STREAM_NOT_FOUND:
                    raise
            await asyncio.sleep(LOOK_EVERY_S)


@asynccontextmanager
async def _bus(url: str) -> AsyncIterator[Bus]:
    async with await Bus.connect(url, role=VIEWER, name=NAME, is_starting=False) as bus:
        yield bus


@asynccontextmanager
async def _profiled_bus(server: EmbeddedServer) -> AsyncIterator[Bus]:
    async with _bus(server.url) as bus:
        await streams.ensure(bus.js, [])
        async with profiled(bus):
            yield bus


@asynccontextmanager
async def profiled(bus: Bus) -> AsyncIterator[None]:
    """Update the statistics of all runs: the cluster that collected them may have ended before it could."""
    profiler = Profiler(bus)
    await profiler.start()
    try:
        yield
    finally:
        await profiler.stop()
