"""Define the command `gymq up`."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter

from gymq.cli.shared.parameters import NOWHERE, Count, LogLevel, NatsUrl, OptionalPort, Overrides, WorkerSources
from gymq.defaults import ClusterPart
from gymq.errors import UsageError


def up(
    *overrides: Overrides,
    sources: WorkerSources = NOWHERE,
    nats: NatsUrl = None,
    only: Annotated[tuple[ClusterPart, ...], Parameter(consume_multiple=False)] = (),
    ray: str | None = None,
    replicas: Count = 1,
    health_port: OptionalPort = None,
    health_host: str = "127.0.0.1",
    log_to: Literal["files", "stderr"] = "files",
    log_level: LogLevel = "info",
) -> int:
    """Start a cluster on this machine and keep it running until Ctrl-C or SIGTERM.

    Without --nats it starts its own NATS server, which keeps its streams in the folder .gymq; other gymq commands
    started in the same folder find it. If the configuration has the mapping `bridge`, the cluster also serves HTTP.

    Args:
        nats: URL of a NATS server with JetStream that the workers connect to.
        only: start only this part of the cluster; may be given several times. The other parts run elsewhere, with the
            same configuration. The part that has the password of the role operator creates the queues of all agents.
        ray: address of a Ray cluster whose nodes run the processes; auto: `ray_head_node_address` of the configuration,
            or the one running here.
        replicas: copies of each stream, on a cluster of NATS servers.
        health_port: answer `GET /health` on this port: 200 if all processes are serving, otherwise 503.
        health_host: address of the health check; 0.0.0.0 for probes from other machines.
        log_to: where the processes log: to files in .gymq/logs, or to stderr.
    """
    from gymq.cli.actions.up import child_on_ray, run_cluster, workers_to_start
    from gymq.cli.shared.cluster import FOLDER
    from gymq.cli.shared.configuration import read_config
    from gymq.cluster import event_loop
    from gymq.cluster.launch import Cluster, Deployment
    from gymq.config.process_settings import layout, process_variables

    settings = read_config(sources, overrides)
    workers = workers_to_start(settings, only)
    if only and nats is None:
        raise UsageError("--only needs --nats URL: the parts of the cluster meet at a server that all can reach")
    if ray is not None and nats is None:
        raise UsageError("--ray needs --nats URL: the processes are on other machines, which must reach the server")
    is_whole = not only
    deployment = Deployment(
        nats, replicas, settings.agents, services=is_whole or "services" in only, logs_to_stderr=log_to == "stderr"
    )
    cluster = Cluster(
        workers,
        folder=FOLDER,
        deployment=deployment,
        log_level=log_level,
        variables=process_variables(settings.tree),
        new_child=None if ray is None else child_on_ray(ray, settings),
        layout=layout(settings.tree) if ray is None and is_whole else "kinds",
    )
    health = None if health_port is None else (health_host, health_port)
    event_loop.run(
        run_cluster(cluster, settings, len(workers), is_whole=is_whole, has_server=nats is None, health=health)
    )
    return 0
