"""gymq up"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from gymq.cli.bridging import bridge_for, read_settings
from gymq.cli.cluster import FOLDER, instance_specs, read_config
from gymq.cli.errors import told_plainly
from gymq.config import Config
from gymq.launch import Cluster
from gymq.redaction import redact


def up(
    *overrides: str,
    config: Annotated[tuple[Path, ...], Parameter(alias="-c", consume_multiple=False)] = (),
    resources: Path | None = None,
    model_url: str | None = None,
    model: str | None = None,
    nats: Annotated[str | None, Parameter(env_var="GYMQ_NATS")] = None,
    replicas: int = 1,
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
        replicas: copies of each stream, on a cluster of NATS servers.
        log_level: debug, info, warning or error.
    """
    with told_plainly():
        settings = read_config(config, overrides, resources=resources, model_url=model_url, model=model)
        specs = instance_specs(settings)
        read_settings(settings.tree)
        cluster = Cluster(specs, folder=FOLDER, url=nats, replicas=replicas, log_level=log_level)
        asyncio.run(_up(cluster, settings))
    return 0


async def _up(cluster: Cluster, config: Config) -> None:
    me = asyncio.current_task()
    assert me is not None
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        # The first one stops the cluster, also while it starts; the second one does not wait for it.
        loop.add_signal_handler(number, me.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        async with cluster, AsyncExitStack() as stack:
            if config.tree.get("bridge") is not None:
                print(await stack.enter_async_context(bridge_for(config, cluster.url)), flush=True)
            where = f"{len(cluster.children)} processes at {redact(cluster.url)}"
            print(f"{len(config.instances)} workers in {where}; Ctrl-C stops them", flush=True)
            try:
                await asyncio.Event().wait()
            finally:
                print("stopping: rollouts in hand are finished or given back", flush=True)
