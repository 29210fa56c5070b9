"""Define the command `gymq status`."""

from __future__ import annotations

from gymq.cli.shared.parameters import ClusterUrl


async def status(
    *,
    nats: ClusterUrl = None,
    json: bool = False,
) -> int:
    """Show the state of a cluster: server, workers, queues, streams, runs and dead letters.

    Asks the cluster running in this folder (`gymq up` starts one), or the one at --nats.

    Args:
        json: print everything as one JSON object.
    """
    from gymq.ext.operate.shown_status import show_status

    return await show_status(nats, json)
