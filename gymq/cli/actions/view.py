"""The work of `gymq view`."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from gymq.bridge.token_texts import TokenTexts
from gymq.bridge.viewer import Viewer
from gymq.bridge.web.export import ViewerExport
from gymq.bus import Bus, streams
from gymq.cli.shared.cluster import LOGS, STORE, connected, require_run, stored_server
from gymq.cli.shared.errors import UsageError
from gymq.cli.shared.interrupts import until_interrupted
from gymq.cli.shared.rollout_import import import_rollouts
from gymq.cluster import logs
from gymq.cluster.server import EmbeddedServer, ServerError, find_running
from gymq.cluster.server.store import Store
from gymq.execution.services.profiler import Profiler
from gymq.render import counted, printable

LOOK_EVERY_S = 0.5
START_TRIES = 120  # until a cluster that has just taken the store over answers
NAME = "gymq view"


async def run_viewer(
    files: Sequence[Path], host: str, port: int | None, nats: str | None, tokenizer: Path | None, log_level: str
) -> None:
    """Serve the viewer, for stored runs or for the given files, until Ctrl-C."""
    logs.configure("view", log_level)
    token_texts = None if tokenizer is None else TokenTexts(tokenizer)
    with until_interrupted():
        if files:
            async with (
                _imported(files) as bus,
                Viewer(bus, host, port, token_texts=token_texts, has_workers=False) as viewer,
            ):
                print(f"{viewer.url}\nCtrl-C stops it", flush=True)
                await asyncio.Event().wait()
        await _follow(host, port, nats, token_texts)


async def export_viewer(
    files: Sequence[Path],
    nats: str | None,
    folder: Path,
    runs: Sequence[str] | None,
    tokenizer: Path | None,
    log_level: str,
) -> int:
    """Write stored runs into a folder that needs no server."""
    logs.configure("view", log_level)
    token_texts = None if tokenizer is None else TokenTexts(tokenizer)
    _clear(folder)
    async with AsyncExitStack() as stack:
        server = None
        if files:
            bus = await stack.enter_async_context(_imported(files))
        else:
            url, server = await stack.enter_async_context(stored_server(nats))
            bus = await stack.enter_async_context(connected(url, name=NAME, role="bridge"))
            if server is not None:
                await stack.enter_async_context(_profiled(bus))
        for run in runs or ():
            await require_run(bus, run)
        export = ViewerExport(bus, folder, token_texts, has_workers=not files and server is None)
        try:
            num_runs, num_rollouts = await export.write(runs)
        except OSError as error:
            raise UsageError(f"{folder} cannot be written: {error.strerror}") from None
    print(f"{counted(num_runs, 'run')} with {counted(num_rollouts, 'rollout')} in {folder / 'index.html'}")
    return 0


def _clear(folder: Path) -> None:
    """Remove what an earlier export wrote."""
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir()) and not (folder / "viewer.js").is_file()):
        raise UsageError(f"{folder} is not empty: name a new folder, or one that --export wrote before")
    for file in (folder / "data").glob("*.js"):
        file.unlink()


@asynccontextmanager
async def _imported(files: Sequence[Path]) -> AsyncIterator[Bus]:
    """Open a temporary store that holds the rollouts of files, each as a run, while the block runs."""
    with tempfile.TemporaryDirectory(prefix="gymq-view-") as folder:
        async with (
            EmbeddedServer(Path(folder) / "jetstream") as server,
            connected(server.url, name=NAME) as bus,
        ):
            await streams.ensure(bus.js, [])
            taken: set[str] = set()
            for file in files:
                found = await import_rollouts(bus, file, taken)
                taken.add(found.run)
                print(f"{found.num_rollouts:,} rollouts of {file}", flush=True)
                for problem in found.problems:
                    print(f"gymq: warning: {printable(problem)}", file=sys.stderr)
            async with _profiled(bus):
                yield bus


async def _follow(host: str, port: int | None, nats: str | None, token_texts: TokenTexts | None) -> None:
    """Show the store of this folder, with a temporary server or with that of a cluster, whichever there is."""
    shown: str | None = None
    while True:
        async with (
            _stored(nats) as (url, server),
            connected(url, name=NAME, role="bridge") as bus,
            AsyncExitStack() as stack,
        ):
            if server is not None:
                await stack.enter_async_context(_profiled(bus))
            viewer = await stack.enter_async_context(
                Viewer(
                    bus,
                    host,
                    port,
                    logs=None if nats else LOGS,
                    token_texts=token_texts,
                    may_change=True,
                    has_workers=server is None,
                )
            )
            if shown is None:
                shown = viewer.url
                print(f"{shown}\nCtrl-C stops it", flush=True)
            port = viewer.port
            if server is not None:
                await server.wanted()
            elif nats is not None:
                await asyncio.Event().wait()
            else:
                await _until_gone(url)


@asynccontextmanager
async def _stored(nats: str | None) -> AsyncIterator[tuple[str, EmbeddedServer | None]]:
    """Yield the same as `stored_server`, retrying while a cluster takes over the store."""
    store = Store(STORE)
    for tries_left in reversed(range(START_TRIES)):
        if not store.is_wanted():
            async with AsyncExitStack() as stack:
                try:
                    found = await stack.enter_async_context(stored_server(nats))
                except ServerError:
                    if not tries_left:
                        raise
                else:
                    yield found
                    return
        elif (url := await find_running(STORE)) is not None:
            yield url, None
            return
        await asyncio.sleep(LOOK_EVERY_S)
    raise UsageError(f"other processes keep taking over {STORE}, so it cannot be shown: try again later")


async def _until_gone(url: str) -> None:
    """Wait until the server at this URL is not the one of this folder any more."""
    misses = 0
    while misses < 3:
        await asyncio.sleep(LOOK_EVERY_S)
        misses = 0 if await find_running(STORE, for_reading=True) == url else misses + 1


@asynccontextmanager
async def _profiled(bus: Bus) -> AsyncIterator[None]:
    """Update the statistics of all runs: the cluster that collected them may have ended before it could."""
    profiler = Profiler(bus)
    await profiler.start()
    try:
        yield
    finally:
        await profiler.stop()
