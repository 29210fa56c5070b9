"""Define the command `gymq retune`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from gymq.cli.shared.parameters import ClusterUrl, PriorityName, Share


def retune(
    *,
    run: str,
    share: Share = None,
    priority: PriorityName | None = None,
    max_in_flight: Annotated[int | None, Parameter(validator=Number(gte=0, lte=1_000_000))] = None,
    nats: ClusterUrl = None,
) -> int:
    """Change a run's share of the workers, its priority or its limit. Options that are not given keep their values.

    Args:
        run: name of the run, as `gymq rollouts` lists it, or a pattern: `*` matches any text, `?` one character.
        share: its share of the workers, relative to other runs of the same priority; 1 by default.
        priority: `urgent` runs get the next free slot, `background` runs what others leave.
        max_in_flight: maximum number of its rollouts in flight, for each of its agents; 0: no maximum.
    """
    import asyncio

    from gymq.cli.actions.steer import steer_in_cluster
    from gymq.errors import UsageError
    from gymq.protocol.messages import Priority

    changes: dict[str, object] = {} if share is None else {"share": share}
    if priority is not None:
        changes["priority"] = Priority(priority)
    if max_in_flight is not None:
        changes["max_in_flight"] = max_in_flight or None
    if not changes:
        raise UsageError("nothing to change: give --share, --priority or --max-in-flight")
    return asyncio.run(steer_in_cluster(run, nats, **changes))
