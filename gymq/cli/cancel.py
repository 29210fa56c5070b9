"""gymq cancel"""

from __future__ import annotations

import asyncio
from typing import Annotated

from cyclopts import Parameter

from gymq.bus import Bus
from gymq.cancel import cancel as cancel_run
from gymq.cli.cluster import running_url
from gymq.cli.errors import Refused, told_plainly
from gymq.runs import Runs


def cancel(
    *,
    run: str,
    task: int | None = None,
    nats: Annotated[str | None, Parameter(env_var="GYMQ_NATS")] = None,
) -> int:
    """Cancel a run: what is queued is removed, what runs is stopped. Finished rollouts stay.

    Args:
        run: name of the run, as `gymq rollouts` lists it.
        task: cancel only this task.
        nats: URL of the cluster; by default the one that runs in this folder.
    """
    with told_plainly():
        return asyncio.run(_cancel(run, task, nats))


async def _cancel(run: str, task: int | None, nats: str | None) -> int:
    bus = await Bus.connect(await running_url(nats), role="client", name="gymq cancel")
    try:
        if not await Runs(bus).exists(run):
            raise Refused(f"there is no run {run!r}; `gymq rollouts` lists the runs")
        queued = await cancel_run(bus, run, task)
    finally:
        await bus.close()
    what = f"run {run}" if task is None else f"task {task} of run {run}"
    print(f"{what} is cancelled; {queued} of its rollouts were queued or in work")
    return 0
