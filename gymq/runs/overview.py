"""The state of a cluster at a cost that does not grow with what is stored: for viewers that poll it.

Counts of rollouts are those of the profiler's checkpoints, and so about a second behind. `gymq.runs.stored_runs` has
the server add up the stored outcomes, which takes a tenth of a second for a million of them.
"""

from __future__ import annotations

import msgspec

from gymq.bus import Bus, streams
from gymq.execution.services.profiler import read_profile
from gymq.runs.cluster_status import QueueState, WorkerState, read_queues, read_workers
from gymq.runs.stored_runs import RunOverview, Runs, run_overview

NEWEST_RUNS = 10


class Overview(msgspec.Struct, frozen=True):
    at: float  # Unix time, seconds
    num_outcomes: int  # outcomes ever stored, of all runs; grows with each
    num_stored: int  # rollouts that have one now: those of deleted runs do not
    num_dead_letters: int
    queues: list[QueueState]  # of tasks
    workers: list[WorkerState]
    runs: list[RunOverview]  # the newest
    num_runs: int


async def read_overview(bus: Bus, at: float, newest: int = NEWEST_RUNS) -> Overview:
    """Ask server and workers.

    Args:
        at: the time now, Unix time in seconds.
        newest: how many runs to read.

    Raises:
        BusError: the server does not answer, or does not have the streams of gymq.
    """
    js = bus.js
    records = await Runs(bus).records()
    outcomes = (await js.api(f"STREAM.INFO.{streams.ROLLOUTS}"))["state"]
    letters = (await js.api(f"STREAM.INFO.{streams.DEAD_LETTERS}"))["state"]
    return Overview(
        at=at,
        num_outcomes=outcomes["last_seq"],
        num_stored=outcomes["messages"],
        num_dead_letters=letters["messages"],
        queues=[queue for queue in await read_queues(js, streams.TASKS) if queue.agent is not None],
        workers=await read_workers(bus),
        runs=[run_overview(record, await read_profile(js, record.run)) for record in records[:newest]],
        num_runs=len(records),
    )
