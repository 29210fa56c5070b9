"""gymq up"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal, get_args

from cyclopts import Parameter

from gymq.cli.bridging import bridge_for, read_settings
from gymq.cli.cluster import FOLDER, instance_specs, read_config
from gymq.cli.errors import Refused, told_plainly
from gymq.cli.health import health_at
from gymq.config import Config
from gymq.host import InstanceSpec
from gymq.launch import Cluster
from gymq.ray_launch import RayNodes
from gymq.redaction import redact

Part = Literal["agents", "models", "resources", "services"]


def up(
    *overrides: str,
    config: Annotated[tuple[Path, ...], Parameter(alias="-c", consume_multiple=False)] = (),
    resources: Path | None = None,
    model_url: str | None = None,
    model: str | None = None,
    nats: Annotated[str | None, Parameter(env_var="GYMQ_NATS")] = None,
    only: Annotated[tuple[Part, ...], Parameter(consume_multiple=False)] = (),
    ray: str | None = None,
    replicas: int = 1,
    health_port: int | None = None,
    health_host: str = "127.0.0.1",
    log_to: Literal["files", "stderr"] = "files",
    log_level: str = "info",
) -> int:
    """Start a cluster on this machine and keep it running until Ctrl-C or SIGTERM.

    Without --nats it brings its own NATS server, with its streams in the folder .gymq; other gymq commands started in
    the same folder find it there. With the mapping `bridge` in the configuration it serves HTTP too.

    Args:
        overrides: changes to the configuration, as `key=value`, `+key=value`, `++key=value` or `~key`.
        config: configuration file; may be given several times.
        resources: Python file with a verifier, to serve it without any configuration.
        model_url: base URL of an OpenAI-compatible endpoint to use as the policy.
        model: name of the model at that endpoint.
        nats: URL of a NATS server with JetStream, to start workers for it.
        only: start only this part of the cluster; may be given several times. The others run elsewhere, from the same
            configuration. Where the password of the role operator is, the queues of all agents are made.
        ray: address of a Ray cluster (auto: the one that runs here) whose nodes run the processes.
        replicas: copies of each stream, on a cluster of NATS servers.
        health_port: answer `GET /health` at this port: 200 if all processes serve, else 503.
        health_host: the address at which it is answered; 0.0.0.0 for probes from other machines.
        log_to: where the processes log: to files in .gymq/logs, or to stderr.
        log_level: debug, info, warning or error.
    """
    with told_plainly():
        settings = read_config(config, overrides, resources=resources, model_url=model_url, model=model)
        specs = _specs(settings, only)
        read_settings(settings.tree)
        if only and nats is None:
            raise Refused("--only needs --nats URL: the parts of the cluster meet at a server that all can reach")
        if ray is not None and nats is None:
            raise Refused("--ray needs --nats URL: the processes are on other machines, which have to reach the server")
        cluster = Cluster(
            specs,
            folder=FOLDER,
            url=nats,
            replicas=replicas,
            log_level=log_level,
            agents=[instance.name for instance in settings.instances if instance.kind == "agents"],
            services=not only or "services" in only,
            logs_to_stderr=log_to == "stderr",
            new_child=None if ray is None else RayNodes(ray).child,
        )
        health = None if health_port is None else (health_host, health_port)
        has_bridge = not only and settings.tree.get("bridge") is not None
        asyncio.run(_up(cluster, settings, len(specs), has_bridge=has_bridge, health=health))
    return 0


def _specs(config: Config, only: tuple[Part, ...]) -> list[InstanceSpec]:
    """The workers to start."""
    parts = only or get_args(Part)
    for kind in only:
        if kind != "services" and kind not in {instance.kind for instance in config.instances}:
            raise Refused(f"--only {kind}: the configuration describes no {kind}")
    if set(only) == {"services"}:
        return []
    return instance_specs(replace(config, instances=[found for found in config.instances if found.kind in parts]))


async def _up(
    cluster: Cluster, config: Config, num_workers: int, *, has_bridge: bool, health: tuple[str, int] | None
) -> None:
    me = asyncio.current_task()
    assert me is not None
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        # The first one stops the cluster, also while it starts; the second one does not wait for it.
        loop.add_signal_handler(number, me.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        async with AsyncExitStack() as stack:
            if health is not None:
                await stack.enter_async_context(health_at(*health, cluster))
            await stack.enter_async_context(cluster)
            if has_bridge:
                print(await stack.enter_async_context(bridge_for(config, cluster.url)), flush=True)
            where = f"{len(cluster.children)} processes at {redact(cluster.url)}"
            print(f"{num_workers} workers in {where}; Ctrl-C stops them", flush=True)
            try:
                await asyncio.Event().wait()
            finally:
                print("stopping: rollouts in hand are finished or given back", flush=True)
