"""Define the command `gymq delete`."""

from __future__ import annotations

from gymq.cli.shared.parameters import NatsUrl


def delete(*, run: list[str], nats: NatsUrl = None) -> int:
    """Delete the stored rollouts, failures, dead letters and statistics of runs. Result files stay.

    A run with queued rollouts is refused: cancel it first.

    Args:
        run: name of a run, as `gymq rollouts` lists it; may be repeated.
        nats: URL of the cluster; default: the cluster or the store in this folder.
    """
    import asyncio

    from gymq.cli.actions.delete import delete_runs

    return asyncio.run(delete_runs(run, nats))
