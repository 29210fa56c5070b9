"""The cluster that a command reads or steers: a given one, one found here, or a temporary server for what is stored."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from fnmatch import fnmatchcase
from pathlib import Path

from gymq.bus import Bus, BusError, NoAnswer, NoServer, streams
from gymq.bus.jetstream import Code, JetStreamError
from gymq.cluster.server import EmbeddedServer, find_running, silent_owner
from gymq.errors import UsageError
from gymq.runs.stored_runs import Runs

FOLDER = Path(".gymq")
STORE = FOLDER / "jetstream"
LOGS = FOLDER / "logs"
CONNECT_S = 5.0  # somebody waits at the terminal


async def find_cluster(*, for_reading: bool = False) -> str | None:
    """Return the URL of the server that runs in this folder, or None; one that starts or stops is waited for."""
    give_up = time.monotonic() + 10.0
    while (url := await find_running(STORE, for_reading=for_reading)) is None:
        owner = await silent_owner(STORE)
        if owner is None:
            return None
        if time.monotonic() > give_up:
            raise UsageError(
                f"the NATS server of the cluster in this folder (process {owner}) does not answer: it is starting, "
                "stopping, frozen or too busy"
            )
    return url


async def running_url(nats: str | None) -> str:
    """Return the URL of a cluster that is already running."""
    url = nats or await find_cluster()
    if url is None:
        raise UsageError(
            "no cluster runs in this folder: start one with `gymq up --config FILE`, or name one with --nats URL"
        )
    return url


@asynccontextmanager
async def stored_url(nats: str | None) -> AsyncIterator[str]:
    """Yield the URL of a server with the streams: of a cluster, or a temporary one for this folder's store."""
    async with stored_server(nats) as (url, _):
        yield url


@asynccontextmanager
async def stored_server(nats: str | None) -> AsyncIterator[tuple[str, EmbeddedServer | None]]:
    """Yield the same URL as `stored_url`, with the server if a temporary one was started.

    A temporary server stops when a cluster needs the store.
    """
    url = nats or await find_cluster(for_reading=True)
    if url is not None:
        yield url, None
        return
    if not STORE.is_dir():
        raise UsageError("nothing is stored in this folder: run `gymq collect`, or name a cluster with --nats URL")
    async with EmbeddedServer(STORE, gives_way=True) as server:
        yield server.url, server


async def open_bus(url: str, *, name: str, role: str = "client", timeout_s: float = CONNECT_S) -> Bus:
    """Connect to a server that should be there."""
    try:
        return await Bus.connect(url, role=role, name=name, timeout_s=timeout_s, is_starting=False)
    except NoServer as error:
        raise UsageError(f"{error}; start one with `gymq up`, or check --nats") from None


@asynccontextmanager
async def connected(url: str, *, name: str, role: str = "client") -> AsyncIterator[Bus]:
    """Connect to a server for one command."""
    bus = await open_bus(url, name=name, role=role)
    try:
        yield bus
    except (JetStreamError, NoAnswer) as error:
        if not await _lacks_streams(bus, error):
            raise
        raise UsageError("this NATS server has no gymq streams yet: create them with `gymq up --nats URL`") from None
    finally:
        await bus.close()


async def _lacks_streams(bus: Bus, error: JetStreamError | NoAnswer) -> bool:
    """Return whether a request failed since the server has no streams, which one that reads a message does not say."""
    if isinstance(error, NoAnswer):
        try:
            await bus.js.api(f"STREAM.INFO.{streams.RUNS}", timeout_s=CONNECT_S)
        except JetStreamError as refused:
            error = refused
        except BusError:
            return False
    return isinstance(error, JetStreamError) and error.code == Code.STREAM_NOT_FOUND


async def matching_runs(bus: Bus, pattern: str) -> list[str]:
    """Return the runs of a pattern, where `*` stands for any text and `?` for a character; or the run of that name."""
    if not set(pattern) & set("*?"):
        await require_run(bus, pattern)
        return [pattern]
    names = [record.run for record in await Runs(bus).records()]
    matching = [name for name in names if fnmatchcase(name, pattern.replace("[", "[[]"))]
    if not matching:
        raise UsageError(f"none of the {len(names)} stored runs matches {pattern!r}")
    return matching


async def require_run(bus: Bus, run: str) -> None:
    """Check that a run exists."""
    runs = Runs(bus)
    if not await runs.exists(run):
        names = [record.run for record in (await runs.records())[:10]]
        listed = f"the newest are {', '.join(names)}" if len(names) > 1 else f"there is only {''.join(names)}"
        known = listed if names else "no run is stored"
        raise UsageError(f"run {run!r} not found; {known}")
