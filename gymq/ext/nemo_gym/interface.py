"""The bridge of a command: `gymq bridge` runs one, and `gymq up` and `gymq collect` do where it is configured."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pydantic

from gymq.authoring import first_problem
from gymq.bus import Bus
from gymq.bus.discovery import find_workers
from gymq.cli.shared.cluster import LOGS, running_url
from gymq.cli.shared.interrupts import until_interrupted
from gymq.cluster import logs
from gymq.config import Config
from gymq.config.sources import origin
from gymq.errors import UsageError
from gymq.ext.nemo_gym.bridge import Bridge
from gymq.ext.nemo_gym.directory import config_of_workers, directory_of
from gymq.ext.nemo_gym.settings import BridgeSettings, settings_of
from gymq.ext.shared.addresses import bracketed
from gymq.processes.open_files import raise_open_files


class BridgeAddress(NamedTuple):
    """Address of a bridge, and the number of its instances."""

    url: str  # of the head server
    num_instances: int

    @property
    def viewer_url(self) -> str:
        """Return what to open in a browser."""
        return f"{self.url}/ui/"

    def __str__(self) -> str:
        return f"{self.num_instances} instances over HTTP at {self.url}; viewer: {self.viewer_url}"


async def serve_until_interrupted(config: Config, nats: str | None, log_level: str) -> None:
    """Serve a running cluster until Ctrl-C."""
    logs.configure("bridge", log_level)
    with until_interrupted():
        async with serve(config, await running_url(nats), LOGS) as address:
            print(f"{address}\nCtrl-C stops it", flush=True)
            try:
                await asyncio.Event().wait()
            finally:
                print("stopping: requests in flight are finished", flush=True)


@asynccontextmanager
async def serve(config: Config, url: str, logs_folder: Path) -> AsyncIterator[BridgeAddress]:
    """Run a bridge while the block runs.

    Args:
        logs_folder: folder of the workers' logs, which the viewer shows.
    """
    settings = check(config)
    raise_open_files()
    async with await Bus.connect(url, role="bridge", name="gymq bridge") as bus:
        is_configured = bool(config.instances)
        if not is_configured:
            found = await find_workers(bus)
            config = config_of_workers(found, {"bridge": config.tree.get("bridge") or {}})
            if not config.instances:
                raise UsageError("no worker runs in this cluster: start some, or name them with --config FILE")
        directory = directory_of(config, settings.host, settings.port, has_options=is_configured)
        async with Bridge(bus, directory, settings, logs=logs_folder):
            yield BridgeAddress(f"http://{bracketed(directory.head_host)}:{settings.port}", len(config.instances))


def check(config: Config) -> BridgeSettings:
    """Return the bridge's settings of a configuration."""
    given = config.tree.get("bridge") or {}
    if not isinstance(given, dict):
        raise UsageError("bridge: expected a mapping with settings")
    try:
        return settings_of(config.tree)
    except pydantic.ValidationError as error:
        where = origin(config.sources, ("bridge", *error.errors(include_input=False)[0]["loc"]))
        problem = f"bridge: {first_problem(error, BridgeSettings)}"
        raise UsageError(f"{where}: {problem}" if where else problem) from None
