"""gymq delete"""

from __future__ import annotations

import asyncio
from typing import Annotated

from cyclopts import Parameter

from gymq import streams, subjects
from gymq.auth import OPERATOR
from gymq.bus import Bus
from gymq.cli.cluster import connected, stored_url
from gymq.cli.errors import Refused, told_plainly
from gymq.jetstream import JetStream
from gymq.runs import Runs


def delete(
    run: str,
    /,
    *more: str,
    nats: Annotated[str | None, Parameter(env_var="GYMQ_NATS")] = None,
) -> int:
    """Delete what is stored of runs: their rollouts, failures, dead letters and statistics. Files stay.

    A run that has rollouts in the queue is refused: cancel it first.

    Args:
        run: name of the run, as `gymq rollouts` lists it.
        more: further runs.
        nats: URL of the cluster; by default what runs, or is stored, in this folder.
    """
    with told_plainly():
        return asyncio.run(_delete([run, *more], nats))


async def _delete(runs: list[str], nats: str | None) -> int:
    async with stored_url(nats) as url, connected(url, name="gymq delete", role=OPERATOR) as bus:
        for run in runs:
            stored = await _check(bus, run)
            await streams.delete_run(JetStream(bus), run)
            print(f"run {run} is deleted, with the outcomes of {stored:,} rollouts")
    return 0


async def _check(bus: Bus, run: str) -> int:
    """Rollouts of a run that have an outcome.

    Raises:
        Refused: nobody knows the run, or it goes on.
    """
    js = JetStream(bus)
    queued = 0
    for subject in (subjects.tasks_of_run(run), subjects.urgent_tasks_of_run(run)):
        queued += sum((await js.count_by_subject(streams.TASKS, subject)).values())
    if queued:
        raise Refused(f"{queued:,} rollouts of run {run} are queued or in work: `gymq cancel --run {run}` first")
    stored = await Runs(bus).num_stored(run)
    if not stored and await Runs(bus).record(run) is None:
        raise Refused(f"there is no run {run}; `gymq rollouts` lists those there are")
    return stored
