"""Define the command `gymq resume`."""

from __future__ import annotations

from gymq.cli.shared.parameters import ClusterUrl


def resume(*, run: str, nats: ClusterUrl = None) -> int:
    """Resume a paused run: agents start its rollouts again.

    Args:
        run: name of the run, as `gymq rollouts` lists it, or a pattern: `*` matches any text, `?` one character.
    """
    import asyncio

    from gymq.cli.actions.steer import steer_in_cluster

    return asyncio.run(steer_in_cluster(run, nats, paused=False))
