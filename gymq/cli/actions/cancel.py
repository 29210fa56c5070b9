"""The work of `gymq cancel`."""

from __future__ import annotations

from gymq.bus.queue.client import QueueClient
from gymq.cli.shared.cluster import connected, matching_runs, running_url


async def cancel_in_cluster(pattern: str, task: int | None, nats: str | None) -> int:
    async with connected(await running_url(nats), name="gymq cancel") as bus:
        queue = QueueClient(bus)
        for run in await matching_runs(bus, pattern):
            queued = await queue.cancel(run, task)
            what = f"run {run}" if task is None else f"task {task} of run {run}"
            print(f"{what} is cancelled; {queued:,} of its rollouts were queued or in flight")
    return 0
