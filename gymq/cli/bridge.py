"""gymq bridge"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

import gymq.bridge
from gymq import logs
from gymq.cli.bridging import bridge_for
from gymq.cli.cluster import read_config, running_url
from gymq.cli.errors import told_plainly
from gymq.config import Config


def bridge(
    *overrides: str,
    config: Annotated[tuple[Path, ...], Parameter(alias="-c", consume_multiple=False)] = (),
    host: str | None = None,
    port: int | None = None,
    nats: Annotated[str | None, Parameter(env_var="GYMQ_NATS")] = None,
    drop_in: bool = False,
    log_level: str = "info",
) -> int:
    """Serve HTTP for a cluster that runs: the interface that trainers and harnesses know.

    Without --config it serves the workers that run when it starts.

    Args:
        overrides: changes to the configuration, as `key=value`, `+key=value`, `++key=value` or `~key`.
        config: configuration file; may be given several times. Its mapping `bridge` has the settings.
        host: address to listen on.
        port: of the head server.
        nats: URL of the cluster; default: the one that runs in this folder.
        drop_in: print the folder with the Python names that trainers import from NeMo Gym, and end.
        log_level: debug, info, warning or error.
    """
    if drop_in:
        print(Path(gymq.bridge.__file__).parent / "drop_in")
        return 0
    with told_plainly():
        settings = read_config(config, overrides)
        given = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
        settings = replace(settings, tree={**settings.tree, "bridge": {**(settings.tree.get("bridge") or {}), **given}})
        asyncio.run(_serve(settings, nats, log_level))
    return 0


async def _serve(config: Config, nats: str | None, log_level: str) -> None:
    me = asyncio.current_task()
    assert me is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, me.cancel)
    logs.configure("bridge", log_level)
    with contextlib.suppress(asyncio.CancelledError):
        async with bridge_for(config, await running_url(nats)) as told:
            print(f"{told}; Ctrl-C stops it", flush=True)
            try:
                await asyncio.Event().wait()
            finally:
                print("stopping: requests in hand are finished", flush=True)
