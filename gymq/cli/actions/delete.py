"""The work of `gymq delete`."""

from __future__ import annotations

from gymq.bus import Bus, streams
from gymq.bus.queue.client import QueueClient
from gymq.cli.shared.cluster import connected, require_run, stored_url
from gymq.cluster.server.roles import OPERATOR
from gymq.errors import UsageError
from gymq.render import counted
from gymq.runs.stored_runs import Runs


async def delete_runs(runs: list[str], nats: str | None) -> int:
    async with stored_url(nats) as url, connected(url, name="gymq delete", role=OPERATOR) as bus:
        for run in runs:
            stored = await _check(bus, run)
            await streams.delete_run(bus.js, run)
            print(f"run {run} is deleted from the store, with {counted(stored, 'outcome')}; files of results stay")
    return 0


async def _check(bus: Bus, run: str) -> int:
    """Return the number of rollouts of a run that have an outcome."""
    queued = await QueueClient(bus).num_queued(run)
    if queued:
        left = f"{counted(queued, 'rollout')} queued or in flight"
        raise UsageError(f"run {run}: {left}; `gymq cancel --run {run}` first")
    await require_run(bus, run)
    return await Runs(bus).num_stored(run)
