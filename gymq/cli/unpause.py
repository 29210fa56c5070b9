"""Define the command `gymq unpause`."""

from __future__ import annotations

from gymq.cli.shared.parameters import ClusterUrl


def unpause(*, run: str, nats: ClusterUrl = None) -> int:
    """Let agents start rollouts of a paused run again; `gymq resume` is the same.

    Args:
        run: name of the run, as `gymq rollouts` lists it, or a pattern: `*` matches any text, `?` one character.
    """
    import asyncio

    from gymq.cli.actions.steer import steer_in_cluster

    return asyncio.run(steer_in_cluster(run, nats, paused=False))
