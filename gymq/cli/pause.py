"""Define the command `gymq pause`."""

from __future__ import annotations

from gymq.cli.shared.parameters import ClusterUrl


def pause(*, run: str, nats: ClusterUrl = None) -> int:
    """Pause a run: agents start none of its rollouts until it is resumed. Rollouts in flight finish.

    Args:
        run: name of the run, as `gymq rollouts` lists it, or a pattern: `*` matches any text, `?` one character.
    """
    import asyncio

    from gymq.cli.actions.steer import steer_in_cluster

    return asyncio.run(steer_in_cluster(run, nats, paused=True))
