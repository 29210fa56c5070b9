"""The work of `gymq view`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from gymq.bus import Bus, credentials
from gymq.bus.credentials import VIEWER
from gymq.cli.shared.cluster import LOGS, connected, require_run, stored_server
from gymq.cli.shared.interrupts import until_interrupted
from gymq.cluster import logs
from gymq.errors import UsageError
from gymq.ext.rollout_files.temporary_store import imported
from gymq.ext.viewer.export import ViewerExport
from gymq.ext.viewer.followed_store import NAME, FollowedStore, profiled
from gymq.ext.viewer.viewer import Viewer
from gymq.render import counted


async def run_viewer(
    files: Sequence[Path], host: str, port: int | None, nats: str | None, tokenizer: Path | None, log_level: str
) -> None:
    """Serve the viewer, for stored runs or for the given files, until Ctrl-C."""
    logs.configure("view", log_level)
    with until_interrupted():
        if files:
            async with (
                _imported(files) as bus,
                Viewer(bus, host, port, tokenizer=tokenizer, has_workers=False) as viewer,
            ):
                await _serve(viewer)
        elif nats is not None:
            async with (
                connected(nats, name=NAME, role=VIEWER) as bus,
                # On a server with roles it may only read.
                Viewer(bus, host, port, tokenizer=tokenizer, may_change=credentials.folder() is None) as viewer,
            ):
                await _serve(viewer)
        else:
            await _follow(host, port, tokenizer)


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
    _clear(folder)
    async with AsyncExitStack() as stack:
        server = None
        if files:
            bus = await stack.enter_async_context(_imported(files))
        else:
            url, server = await stack.enter_async_context(stored_server(nats))
            bus = await stack.enter_async_context(connected(url, name=NAME, role=VIEWER))
            if server is not None:
                await stack.enter_async_context(profiled(bus))
        for run in runs or ():
            await require_run(bus, run)
        export = ViewerExport(bus, folder, tokenizer, has_workers=not files and server is None)
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
    """Open a temporary store with the rollouts of files and their statistics, while the block runs."""
    async with imported(files, name=NAME) as (bus, runs), profiled(bus):
        for file, found in zip(files, runs, strict=True):
            print(f"{counted(found.num_rollouts, 'rollout')} of {file}", flush=True)
        yield bus


async def _follow(host: str, port: int | None, tokenizer: Path | None) -> None:
    """Show what is stored in this folder, while clusters come and go in it."""
    store = FollowedStore()
    viewer = Viewer(None, host, port, logs=LOGS, tokenizer=tokenizer, may_change=True, notice=lambda: store.notice)
    async with viewer:
        _print_address(viewer)
        await store.follow(viewer.read_from, viewer.leave_bus)


async def _serve(viewer: Viewer) -> None:
    _print_address(viewer)
    await asyncio.Event().wait()


def _print_address(viewer: Viewer) -> None:
    print(f"{viewer.url}\nCtrl-C stops it", flush=True)
