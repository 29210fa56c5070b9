"""Define the command `gymq env-server`."""

from __future__ import annotations

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
    from gymq.cli.actions.env_server import serve
    from gymq.cluster import event_loop

    event_loop.run(serve(address, run, nats, log_level, exposed=exposed))
    return 0
