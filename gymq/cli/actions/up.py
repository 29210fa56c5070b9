"""The work of `gymq up`."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import cast, get_args

from aiohttp import web

from gymq.cli.shared.cluster import LOGS
from gymq.cli.shared.configuration import check_instances
from gymq.cli.shared.interfaces import interfaces
from gymq.cli.shared.interrupts import until_interrupted
from gymq.cluster.launch import Cluster, WorkerProcess
from gymq.cluster.process_spec import ProcessSpec
from gymq.config import Config
from gymq.config.process_settings import RAY_ADDRESS
from gymq.defaults import ClusterPart
from gymq.errors import UsageError
from gymq.extensions import extensions
from gymq.processes.open_files import raise_open_files
from gymq.protocol.instances import Instance
from gymq.redaction import redact
from gymq.render import counted

log = logging.getLogger("gymq.launch")


def workers_to_start(config: Config, only: tuple[ClusterPart, ...]) -> list[Instance]:
    """Return the checked instances of the parts that are to be started."""
    parts = only or get_args(ClusterPart)
    for kind in only:
        if kind != "services" and kind not in {instance.kind for instance in config.instances}:
            raise UsageError(f"--only {kind}: the configuration describes no {kind}")
    if set(only) == {"services"}:
        return []
    chosen = [found for found in config.instances if found.kind in parts]
    check_instances(replace(config, instances=chosen))
    return chosen


def child_on_ray(address: str, config: Config) -> Callable[[str, ProcessSpec], WorkerProcess]:
    """Return what makes the processes of a cluster on the nodes of a Ray cluster.

    Args:
        address: of the cluster; `auto`: that of the configuration, or the one running here.

    Raises:
        UsageError: Ray is not installed, or there is no cluster at that address.
    """
    if address == "auto":
        address = config.tree.get(RAY_ADDRESS) or address
    for found in extensions("nodes"):
        if found.name == "ray":
            return cast(Callable[[str, ProcessSpec], WorkerProcess], found.load()(address).child)
    raise UsageError("--ray: no package has the entry point `ray` of gymq.nodes")


async def run_cluster(
    cluster: Cluster,
    config: Config,
    num_workers: int,
    *,
    is_whole: bool,
    has_server: bool,
    health: tuple[str, int] | None,
) -> None:
    """Run a cluster until it is interrupted; at each SIGUSR1 its processes are replaced, as gymq is installed then.

    Args:
        is_whole: serve the interfaces of the configuration too.
        has_server: the NATS server is the cluster's own, which `gymq view` finds in this folder.
        health: host and port that answer `GET /health`, if any.
    """
    is_to_replace = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, is_to_replace.set)
    with until_interrupted():
        async with AsyncExitStack() as stack:
            if health is not None:
                await stack.enter_async_context(health_at(*health, cluster))
            await stack.enter_async_context(cluster)
            serving = interfaces(config) if is_whole else []
            for interface in serving:
                print(await stack.enter_async_context(interface.serve(config, cluster.url, LOGS)), flush=True)
            where = f"{counted(len(cluster.children), 'process')} at {redact(cluster.url)}"
            print(f"{counted(num_workers, 'worker')} in {where}; Ctrl-C stops them", flush=True)
            if has_server and not serving:
                print("gymq view, in this folder, shows runs and rollouts in a browser", flush=True)
            try:
                while await is_to_replace.wait():
                    is_to_replace.clear()
                    await _replace(cluster)
            finally:
                print("stopping: rollouts in flight are finished or requeued", flush=True)


async def _replace(cluster: Cluster) -> None:
    print("replacing the processes, one after the other", flush=True)
    try:
        await cluster.replace_children()
    except (UsageError, OSError) as error:
        log.error("%s; no further process is replaced until the next SIGUSR1", error)
    else:
        print("all processes are replaced", flush=True)


@asynccontextmanager
async def health_at(host: str, port: int, cluster: Cluster) -> AsyncIterator[None]:
    """Answer `GET /health` while the block runs: 200 if everything serves, else 503 and what does not.

    A process that waits for a NATS server that is away counts as serving, since a restart would not help.
    """

    async def answer(_: web.Request) -> web.Response:
        missing = cluster.not_serving
        return web.json_response({"not_serving": missing}, status=503 if missing else 200)

    raise_open_files()
    app = web.Application()
    app.add_routes([web.get("/health", answer)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise UsageError(f"--health-port: {host}:{port}: cannot listen: {reason}; choose another port") from None
        yield
    finally:
        await runner.cleanup()
