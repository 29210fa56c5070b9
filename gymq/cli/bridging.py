"""The bridge of a command: `gymq bridge` runs one, and `gymq up` and `gymq collect` do where it is configured."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pydantic

from gymq.authoring import first_problem
from gymq.bridge import Bridge, BridgeSettings, settings_of
from gymq.bridge.bridge import PortTaken
from gymq.bridge.directory import config_of_workers, directory_of
from gymq.bridge.metrics import MetricsMissing
from gymq.bus import Bus
from gymq.cli.errors import Refused
from gymq.config import Config
from gymq.discovery import find_workers
from gymq.host import raise_open_files


@asynccontextmanager
async def bridge_for(config: Config, url: str) -> AsyncIterator[str]:
    """A bridge while the block runs; gives a sentence that says where.

    Raises:
        Refused: a setting or a port does not do, or there is nothing to serve.
        BusError
    """
    settings = read_settings(config.tree)
    raise_open_files()
    bus = await Bus.connect(url, role="bridge", name="gymq bridge")
    try:
        is_configured = bool(config.instances)
        if not is_configured:
            found = await find_workers(bus)
            config = config_of_workers(found, {"bridge": config.tree.get("bridge") or {}})
            if not config.instances:
                raise Refused("no worker runs in this cluster: start some, or name them with --config FILE")
        directory = directory_of(config, settings.host, settings.port, has_options=is_configured)
        async with Bridge(bus, directory, settings):
            yield f"{len(config.instances)} instances over HTTP at http://{directory.head_host}:{settings.port}"
    except (MetricsMissing, PortTaken) as error:
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
