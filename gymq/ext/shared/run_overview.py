"""Runs as lists show them: how far each is, and what its last checkpoint says."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gymq.bus import Bus, streams
from gymq.bus.queue.steering import read_steering
from gymq.execution.services.profiler import read_profile
from gymq.ext.shared.rendering import shown_time
from gymq.protocol import subjects
from gymq.protocol.messages import Profile, Run
from gymq.render import Listing, listing, printable, shown_count, shown_environments, shown_number
from gymq.runs.stored_runs import Runs
from gymq.stats.running import AgentSnapshot, ProfileSnapshot


class RunOverview(msgspec.Struct, frozen=True):
    """A run as the last checkpoint of its profile shows it, all agents together."""

    run: str
    created_at: float  # Unix time, seconds; 0: unknown
    updated_at: float | None  # Unix time of the last rollout's end; None: none has ended yet
    num_rollouts: int | None  # in all; None: unknown
    num_rewarded: int
    failures: dict[str, int]  # rollouts whose outcome is a failure, by its class
    mean_reward: float | None  # over tasks
    models: list[str]  # what answers behind the policy
    agents: dict[str, AgentSnapshot]
    environments: dict[str, str]  # by agent: the name of its environment in tables
    all: AgentSnapshot | None = None  # all agents together
    note: str = ""  # what people say about it
    tags: list[str] = []
    num_failed_attempts: int = 0  # those that a later outcome replaced count too


def run_overview(record: Run, checkpoint: Profile | None) -> RunOverview:
    """Summarise a run from its record and its checkpoint; without one, it has nothing yet."""
    agents: dict[str, AgentSnapshot] = {}
    whole = None
    if checkpoint is not None:
        snapshot = msgspec.convert(checkpoint.snapshot, ProfileSnapshot, str_keys=True)
        agents, whole = snapshot.agents, snapshot.all
    return RunOverview(
        run=record.run,
        created_at=record.created_at,
        updated_at=None if checkpoint is None else checkpoint.at,
        num_rollouts=record.num_rollouts,
        num_rewarded=whole.rollouts if whole else 0,
        failures=whole.failures if whole else {},
        mean_reward=whole.mean_reward.value if whole and whole.mean_reward else None,
        models=record.models,
        agents=agents,
        environments=shown_environments(agents),
        all=whole,
        note=record.note,
        tags=record.tags,
        num_failed_attempts=sum(whole.failed_attempts.values()) if whole else 0,
    )


class RunProgress(msgspec.Struct, frozen=True):
    """The progress of a run."""

    run: str
    created_at: float  # Unix time, seconds; 0: unknown
    num_rollouts: int | None  # in all; None: unknown, for runs submitted row by row
    num_stored: int  # rollouts that have an outcome, failures included
    num_rewarded: int  # outcomes with a reward, as of the profiler's last checkpoint
    num_failures: int  # outcomes without one, as of the same
    mean_reward: float | None
    models: list[str]  # what answers behind the policy
    paused: bool = False  # agents start none of its rollouts
    cancelled: bool = False


async def run_progress(bus: Bus, record: Run) -> RunProgress:
    """Return the progress of a run.

    Raises:
        BusError: the server does not answer.
    """
    profiled = run_overview(record, await read_profile(bus.js, record.run))
    steering = await read_steering(bus, record.run)
    return RunProgress(
        run=record.run,
        created_at=record.created_at,
        num_rollouts=record.num_rollouts,
        num_stored=await Runs(bus).num_stored(record.run),
        num_rewarded=profiled.num_rewarded,
        num_failures=sum(profiled.failures.values()),
        mean_reward=profiled.mean_reward,
        models=record.models,
        paused=steering is not None and steering.paused,
        cancelled=await bus.js.newest(streams.RUNS, subjects.cancelled(record.run, None)) is not None,
    )


def run_table(runs: Sequence[RunProgress], *, num_runs: int) -> Listing:
    """Return a table of the runs, whose caption says how many more there are."""
    caption = f"the newest {len(runs)} of {num_runs} runs" if num_runs > len(runs) else None
    numbers = ("finished", "failed", "reward")
    table = listing("runs", "run", "started", *numbers, "policy", numbers=numbers, names=("started",), caption=caption)
    for run in runs:
        finished = f"{run.num_stored:,}"
        table.add_row(
            run.run,
            shown_time(run.created_at),
            (finished if run.num_rollouts is None else f"{finished} of {run.num_rollouts:,}")
            + (", cancelled" if run.cancelled else ", paused" if run.paused else ""),
            shown_count(run.num_failures),
            shown_number(run.mean_reward),
            printable(", ".join(run.models) or "-"),
        )
    return table
