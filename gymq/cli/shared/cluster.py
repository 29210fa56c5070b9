"""The cluster of a command: a given one, one found here, or a temporary one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from gymq.bus import Bus, BusError, NoAnswer, NoServer, streams
from gymq.bus.jetstream import Code, JetStreamError
from gymq.cli.shared.configuration import check_instance, require_instances
from gymq.cli.shared.interfaces import interfaces
from gymq.cluster.launch import Cluster
from gymq.cluster.server import EmbeddedServer, StoreInUseError, find_running, silent_owner
from gymq.cluster.worker_process import WorkerFailed
from gymq.config import Config, Instance, fingerprint
from gymq.config.process_settings import layout, process_variables
from gymq.errors import UsageError
from gymq.execution.loading.registry import WorkerNotFound
from gymq.protocol.subjects import BadToken
from gymq.render import say
from gymq.runs.stored_runs import Runs

FOLDER = Path(".gymq")
STORE = FOLDER / "jetstream"
LOGS = FOLDER / "logs"
CONNECT_S = 5.0  # somebody waits at the terminal


class ClusterAddress(NamedTuple):
    """Addresses of a cluster."""

    url: str  # of its NATS server
    viewer_url: str | None = None  # what to open in a browser, where the command knows it
    is_of_another: bool = False  # of a command that was started before in this folder


async def check_workers(nats: str | None, config: Config) -> None:
    """Check that each worker of a configuration accepts its options and, unless a cluster runs, exists here."""
    is_running = nats is not None or await find_running(STORE) is not None
    for found in config.instances:
        with suppress(*((BadToken, WorkerFailed, WorkerNotFound) if is_running else ())):
            check_instance(config, found)


@asynccontextmanager
async def cluster_url(
    nats: str | None,
    config: Config,
    *,
    log_level: str,
    resumed: str | None = None,
    before_start: Callable[[Sequence[Instance]], Awaitable[None]] | None = None,
) -> AsyncIterator[ClusterAddress]:
    """Open a cluster and yield its address: the given one, the one running in this folder, or a temporary one.

    A temporary cluster has a bridge if the configuration asks for it.

    Args:
        resumed: the run that is resumed, if any.
        before_start: called with the workers before a temporary cluster is started.
    """

    async def prepare(bus: Bus) -> None:
        await Runs(bus).delete_tasks_of_others(fingerprint(config.tree), resumed=resumed)

    variables = process_variables(config.tree)
    async with AsyncExitStack() as stack:
        while True:
            url = nats or await _find_cluster()
            if url is not None:
                yield ClusterAddress(url, is_of_another=nats is None)
                return
            require_instances(config)
            if before_start is not None:
                await before_start(config.instances)
            cluster = Cluster(
                config.instances,
                folder=FOLDER,
                log_level=log_level,
                variables=variables,
                prepare=prepare,
                layout=layout(config.tree),
            )
            with suppress(StoreInUseError):  # another command has started one meanwhile
                await stack.enter_async_context(cluster)
                break
        address = ClusterAddress(cluster.url)
        for interface in interfaces(config):
            serving = await stack.enter_async_context(interface.serve(config, cluster.url, LOGS))
            address = ClusterAddress(cluster.url, serving.viewer_url)
        try:
            yield address
        except asyncio.CancelledError:
            stopping = "rollouts in flight are finished or requeued; press Ctrl-C again to abort"
            say(f"stopping: {stopping}")
            raise


async def _find_cluster(*, for_reading: bool = False) -> str | None:
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
    url = nats or await _find_cluster()
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
    url = nats or await _find_cluster(for_reading=True)
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
