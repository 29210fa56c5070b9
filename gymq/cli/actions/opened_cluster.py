"""The cluster of a collection: a given one, one found here, or a temporary one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import NamedTuple

from gymq.bus import Bus
from gymq.cli.shared.cluster import FOLDER, LOGS, STORE, find_cluster
from gymq.cli.shared.configuration import check_instance, require_instances
from gymq.cli.shared.interfaces import interfaces
from gymq.cluster.launch import Cluster
from gymq.cluster.server import StoreInUseError, find_running
from gymq.config import Config, Instance, fingerprint
from gymq.config.process_settings import layout, process_variables
from gymq.execution.loading.building import WorkerFailed
from gymq.execution.loading.registry import WorkerNotFound
from gymq.protocol.subjects import BadToken
from gymq.render import say
from gymq.runs.stored_runs import Runs


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
            url = nats or await find_cluster()
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
