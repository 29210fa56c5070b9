"""Define the command `gymq cancel`."""

from __future__ import annotations

from gymq.cli.shared.parameters import ClusterUrl, OptionalIndex


def cancel(
    *,
    run: str,
    task: OptionalIndex = None,
    nats: ClusterUrl = None,
) -> int:
    """Cancel a run: remove its queued rollouts and stop those in flight. Finished rollouts stay.

    Args:
        run: name of the run, as `gymq rollouts` lists it, or a pattern: `*` matches any text, `?` one character.
        task: cancel only this task.
    """
    import asyncio

    from gymq.cli.actions.cancel import cancel_in_cluster

    return asyncio.run(cancel_in_cluster(run, task, nats))
