"""The work of `gymq cancel`."""

from __future__ import annotations

from gymq.bus import Bus
from gymq.cli.cluster import require_run, running_url
from gymq.queue.client import QueueClient


async def cancel_in_cluster(run: str, task: int | None, nats: str | None) -> int:
    bus = await Bus.connect(await running_url(nats), role="client", name="gymq cancel")
    try:
        await require_run(bus, run)
        queued = await QueueClient(bus).cancel(run, task)
    finally:
        await bus.close()
    what = f"run {run}" if task is None else f"task {task} of run {run}"
    print(f"{what} is cancelled; {queued} of its rollouts were queued or in flight")
    return 0
