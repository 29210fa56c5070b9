"""gymq bridge"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import pydantic
from cyclopts import Parameter

from gymq import logs
from gymq.authoring import first_problem
from gymq.bridge import Bridge, BridgeSettings, settings_of
from gymq.bridge.bridge import PortTaken
from gymq.bridge.directory import config_of_workers, directory_of
from gymq.bus import Bus
from gymq.cli.cluster import read_config, running_url
from gymq.cli.errors import Refused, told_plainly
from gymq.config import Config
from gymq.discovery import find_workers


def bridge(
    *overrides: str,
    config: Annotated[tuple[Path, ...], Parameter(alias="-c", consume_multiple=False)] = (),
    host: str | None = None,
    port: int | None = None,
    nats: Annotated[str | None, Parameter(env_var="GYMQ_NATS")] = None,
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
        log_level: debug, info, warning or error.
    """
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


@asynccontextmanager
async def bridge_for(config: Config, url: str) -> AsyncIterator[str]:
    """A bridge while the block runs; gives a sentence that says where.

    Raises:
        Refused: a setting or a port does not do, or there is nothing to serve.
        BusError
    """
    settings = read_settings(config.tree)
    bus = await Bus.connect(url, role="bridge", name="gymq bridge")
    try:
        if not config.instances:
            found = await find_workers(bus)
            config = config_of_workers(found, {"bridge": config.tree.get("bridge") or {}})
            if not config.instances:
                raise Refused("no worker runs in this cluster: start some, or name them with --config FILE")
        directory = directory_of(config, settings.host, settings.port)
        async with Bridge(bus, directory, settings):
            yield f"{len(config.instances)} instances over HTTP at http://{directory.head_host}:{settings.port}"
    except PortTaken as error:
        raise Refused(str(error)) from None
    finally:
        await bus.close()


def read_settings(tree: dict[str, Any]) -> BridgeSettings:
    """The settings of a configuration.

    Raises:
        Refused: one of them does not fit.
    """
    if not isinstance(tree.get("bridge") or {}, dict):
        raise Refused("bridge: expected a mapping with settings")
    try:
        return settings_of(tree)
    except pydantic.ValidationError as error:
        raise Refused(f"bridge.{first_problem(error)}") from None
