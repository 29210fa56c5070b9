"""The state of a cluster at a cost that does not grow with what is stored: for viewers that poll it.

Counts of rollouts are those of the profiler's checkpoints, and so about a second behind. `gymq.runs.stored_runs` has
the server add up the stored outcomes, which takes a tenth of a second for a million of them.
"""

from __future__ import annotations

import msgspec

from gymq.bus import Bus, streams
from gymq.execution.services.profiler import read_profile
from gymq.protocol.messages import Profile, Run
from gymq.runs.cluster_status import QueueState, WorkerState, read_queues, read_workers
from gymq.runs.stored_runs import Runs, profiled_totals
from gymq.stats.running import AgentSnapshot

NEWEST_RUNS = 10


class RunOverview(msgspec.Struct, frozen=True):
    """A run as the last checkpoint of its profile shows it."""

    run: str
    created_at: float  # Unix time, seconds; 0: unknown
    updated_at: float | None  # Unix time of the checkpoint; None: no rollout has ended yet
    num_rollouts: int | None  # in all; None: unknown
    num_rewarded: int
    failures: dict[str, int]  # failed attempts, by failure class
    mean_reward: float | None
    models: list[str]  # what answers behind the policy
    agents: dict[str, AgentSnapshot]
    note: str = ""  # what people say about it
    tags: list[str] = []


class Overview(msgspec.Struct, frozen=True):
    at: float  # Unix time, seconds
    num_outcomes: int  # outcomes ever stored, of all runs; grows with each
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
        num_dead_letters=letters["messages"],
        queues=[queue for queue in await read_queues(js, streams.TASKS) if queue.agent is not None],
        workers=await read_workers(bus),
        runs=[run_overview(record, await read_profile(js, record.run)) for record in records[:newest]],
        num_runs=len(records),
    )


def run_overview(record: Run, checkpoint: Profile | None) -> RunOverview:
    """Summarise a run from its record and its checkpoint."""
    profiled = profiled_totals(checkpoint)
    return RunOverview(
        run=record.run,
        created_at=record.created_at,
        updated_at=None if checkpoint is None else checkpoint.at,
        num_rollouts=record.num_rollouts,
        num_rewarded=profiled.num_rewarded,
        failures=profiled.failures,
        mean_reward=profiled.mean_reward,
        models=record.models,
        agents=profiled.agents,
        note=record.note,
        tags=record.tags,
    )
