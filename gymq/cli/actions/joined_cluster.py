"""The cluster of another command in this folder: what it serves, and what is done when it ends first."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from gymq.bus import Bus, BusError
from gymq.bus.discovery import find_workers
from gymq.cli.actions.opened_cluster import ClusterAddress
from gymq.cli.shared.cluster import STORE
from gymq.cluster.server import is_gone
from gymq.cluster.server.store import Store
from gymq.config import Config, digest_of
from gymq.errors import UsageError
from gymq.protocol.instances import SERVER_TYPE_OF
from gymq.redaction import redact
from gymq.runs.collection.collection import Collection
from gymq.runs.collection.preflight import policies
from gymq.runs.collection.progress import Progress

FIND_S = 5.0
CHANGING_S = 60.0  # in which the workers of a cluster start, or have stopped
LOOK_EVERY_S = 3.0  # whether a cluster is still there


class ClusterStopped(UsageError):
    """The command that started the cluster has stopped it."""


@contextmanager
def noticing_its_end(address: ClusterAddress) -> Iterator[None]:
    """Turn what fails because the cluster of another command was stopped into ClusterStopped."""
    try:
        yield
    except (BusError, UsageError) as error:
        if isinstance(error, ClusterStopped) or not address.is_of_another or not is_gone(STORE, address.url):
            raise
        raise ClusterStopped("the cluster that runs here was stopped") from None


async def run_joined(collection: Collection, bus: Bus, url: str) -> Progress:
    """Run a collection at the cluster of another command.

    Raises:
        ClusterStopped: the other command has stopped it.
    """
    running = asyncio.create_task(collection.run())
    try:
        while not (await asyncio.wait({running}, timeout=LOOK_EVERY_S))[0]:
            if not bus.is_connected and is_gone(STORE, url):
                progress = collection.progress
                done = f"{progress.done:,} of {progress.total:,} done"
                raise ClusterStopped(f"the cluster that run {progress.run} joined was stopped: {done}")
        return running.result()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def check_served(bus: Bus, config: Config, address: ClusterAddress, *, is_here: bool) -> list[str]:
    """Check that a cluster serves what a configuration describes; return its models, as the final table names them.

    Args:
        is_here: whether the cluster runs in this folder, so that its options are read as those of the configuration.

    Raises:
        UsageError: it serves something else.
    """
    if is_here and not address.is_of_another:  # this command has started it with the configuration, and it serves
        return policies(config)
    wanted = {(instance.name, instance.implementation) for instance in config.instances}
    begun = time.monotonic()
    while True:
        running = {
            (found["name"], found["metadata"]["implementation"]): found
            for found in await find_workers(bus)
            if found["metadata"]["kind"] in SERVER_TYPE_OF
        }
        if wanted <= running.keys():
            break
        # A worker may be too busy to answer at once; those of a cluster that starts or stops are not all there.
        is_changing = address.is_of_another and (not running or _is_young())
        if time.monotonic() - begun > (CHANGING_S if is_changing else FIND_S):
            break
        if address.is_of_another and is_gone(STORE, address.url):
            break
    if wanted and not running:
        cure = "wait until its command has ended"
        if not address.is_of_another:
            cure = "start them with `gymq up --nats URL` and this configuration, or leave --nats out"
        raise UsageError(f"no worker answers at {redact(address.url)}; {cure}")
    for instance in config.instances:
        if (instance.name, instance.implementation) not in running:
            others = ", ".join(f"{name} = {implementation}" for name, implementation in sorted(running))
            raise UsageError(
                f"the cluster that runs here does not serve {instance.name} = {instance.implementation}; it serves "
                f"{others}. Stop it, or collect without a configuration of your own"
            )
        digest = running[instance.name, instance.implementation]["metadata"].get("digest")
        if is_here and digest not in (None, digest_of(instance)):  # elsewhere paths and variables may differ
            raise UsageError(
                f"the cluster that runs here serves {instance.name} with other options or code than asked for. Wait "
                "until it has ended, collect in another folder, or collect without a configuration of your own"
            )
    return policies(config) or [
        f"{name} = {implementation}"
        for (name, implementation), found in sorted(running.items())
        if found["metadata"]["kind"] == "models"
    ]


def _is_young() -> bool:
    """Return whether the server of this folder was started a moment ago."""
    record = Store(STORE).read_record()
    if record is None:
        return False
    return datetime.now(UTC) - datetime.fromisoformat(record.started) < timedelta(seconds=CHANGING_S)
