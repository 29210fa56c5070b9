"""The work of `gymq pause`, `gymq resume` and `gymq retune`."""

from __future__ import annotations

from gymq.bus.queue.steering import steer
from gymq.cli.shared.cluster import connected, matching_runs, running_url
from gymq.protocol.messages import Priority, Steering


async def steer_in_cluster(pattern: str, nats: str | None, **changes: object) -> int:
    async with connected(await running_url(nats), name="gymq retune") as bus:
        for run in await matching_runs(bus, pattern):
            print(f"run {run}: {shown(await steer(bus, run, **changes))}")
    return 0


def shown(steering: Steering) -> str:
    """Return how a run is steered, as text such as `paused, share 4`."""
    parts = ["paused" if steering.paused else "not paused", f"share {steering.share:g}"]
    if steering.priority not in (None, Priority.NORMAL):
        parts.append(str(steering.priority))
    if steering.max_in_flight is not None:
        parts.append(f"at most {steering.max_in_flight:,} in flight for each agent")
    return ", ".join(parts)
