"""Define the command `gymq env-server`."""

from __future__ import annotations

from gymq.cli.shared.command import Command
from gymq.cli.shared.parameters import ClusterUrl, LogLevel


def env_server(
    *,
    address: str = "tcp://127.0.0.1:5000",
    exposed: bool = False,
    run: str | None = None,
    nats: ClusterUrl = None,
    log_level: LogLevel = "info",
) -> int:
    """Serve a running cluster to prime-rl, as an environment server of verifiers.

    Args:
        address: address to listen on, as `tcp://HOST:PORT`.
        exposed: allow an address that other machines can reach. The protocol has no passwords: every program that can
            reach the address may roll out rows.
        run: name that the rollouts are stored under; default: a new one for each start.
    """
    from gymq.cluster import event_loop
    from gymq.ext.verifiers.serving import serve

    event_loop.run(serve(address, run, nats, log_level, exposed=exposed))
    return 0


ENV_SERVER = Command(
    "Operate", "Serve a cluster to prime-rl, as an environment server.", "gymq.ext.verifiers.command:env_server"
)
