"""The work of `gymq cancel`."""

from __future__ import annotations

from gymq.bus import Bus
from gymq.bus.queue.client import QueueClient
from gymq.cli.shared.cluster import matching_runs, running_url


async def cancel_in_cluster(pattern: str, task: int | None, nats: str | None) -> int:
    bus = await Bus.connect(await running_url(nats), role="client", name="gymq cancel")
    try:
        queue = QueueClient(bus)
        for run in await matching_runs(bus, pattern):
            queued = await queue.cancel(run, task)
            what = f"run {run}" if task is None else f"task {task} of run {run}"
            print(f"{what} is cancelled; {queued} of its rollouts were queued or in flight")
    finally:
        await bus.close()
    return 0
