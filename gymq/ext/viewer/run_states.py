"""The states of runs, from a few counts of the server that cover all runs at once."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum

from gymq.bus import Bus, streams
from gymq.protocol import subjects
from gymq.protocol.codec import Decoder
from gymq.protocol.messages import BadMessage, Run, Steering

_decode_steering = Decoder(Steering)

QUIET_S = 15.0  # with nothing queued and nothing stored, before an unfinished run is taken for interrupted


class RunState(StrEnum):
    """What a run is doing."""

    QUEUED = "queued"  # no rollout has ended yet
    RUNNING = "running"
    DONE = "done"
    PAUSED = "paused"  # rollouts in flight finish, no other is started
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"  # rollouts are missing, and none of them is queued


@dataclass(frozen=True)
class Queued:
    """What the server holds of all runs.

    Attributes:
        tasks: how many tasks of each run are queued or in flight.
        cancelled: runs that were cancelled as a whole.
        paused: runs of which agents start no rollouts.
        profiled: runs of which a rollout has ended.
    """

    tasks: dict[str, int] = field(default_factory=dict)
    cancelled: frozenset[str] = frozenset()
    paused: frozenset[str] = frozenset()
    profiled: frozenset[str] = frozenset()


async def read_queued(bus: Bus, *, has_workers: bool = True) -> Queued:
    """Ask the server for all runs.

    Args:
        has_workers: False for a store without its cluster: no task that is still queued there is being worked on.

    Raises:
        BusError: it does not answer.
    """
    tasks: dict[str, int] = {}
    for wildcard in (subjects.TASK.wildcard, subjects.URGENT_TASK.wildcard) if has_workers else ():
        for subject, count in (await bus.js.count_by_subject(streams.TASKS, wildcard)).items():
            run = subject.split(".")[2]
            tasks[run] = tasks.get(run, 0) + count
    marks = await bus.js.count_by_subject(streams.RUNS, subjects.CANCELLED.wildcard)
    profiles = await bus.js.count_by_subject(streams.RUNS, subjects.PROFILE.wildcard)
    return Queued(
        tasks,
        frozenset(subject.split(".")[2] for subject in marks if subject.endswith(".all")),
        await _paused_runs(bus),
        frozenset(subject.split(".")[2] for subject in profiles),
    )


async def _paused_runs(bus: Bus) -> frozenset[str]:
    paused: set[str] = set()
    async for stored in bus.js.read(streams.RUNS, subjects.STEERING.wildcard):
        with suppress(BadMessage):
            steering: Steering = _decode_steering(stored.data)
            if steering.paused:
                paused.add(steering.run)
    return frozenset(paused)


def is_empty(record: Run, queued: Queued) -> bool:
    """Return whether there is nothing of a run but its record, as of a bridge that no row came to."""
    return record.num_rollouts is None and record.run not in queued.tasks and record.run not in queued.profiled


def state_of(record: Run, num_stored: int, updated_at: float | None, queued: Queued) -> RunState:
    """Return what a run is doing.

    Args:
        num_stored: how many of its rollouts have an outcome.
        updated_at: Unix time of the end of its last rollout, if one has ended.
    """
    if record.num_rollouts is not None and num_stored >= record.num_rollouts:
        return RunState.CANCELLED if record.run in queued.cancelled else RunState.DONE
    if record.run in queued.cancelled:
        return RunState.CANCELLED
    if record.run in queued.paused:
        return RunState.PAUSED
    if record.run in queued.tasks:
        return RunState.RUNNING if num_stored else RunState.QUEUED
    if record.num_rollouts is None:  # row by row, by programs that do not say how many there will be
        return RunState.DONE if num_stored else RunState.QUEUED
    is_quiet = time.time() - max(record.created_at, updated_at or 0.0) > QUIET_S
    return RunState.INTERRUPTED if is_quiet else RunState.RUNNING
