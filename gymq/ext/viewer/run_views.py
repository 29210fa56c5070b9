"""Runs as the viewer shows them, from the profiler's checkpoints: no cost here grows with the number of outcomes."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from dataclasses import dataclass, field

import msgspec

from gymq.bus import Bus, streams
from gymq.bus.queue.dead_letters import DeadLetters
from gymq.execution.services.profiler import read_profile
from gymq.ext.http.errors import run_not_found
from gymq.ext.shared.run_overview import RunOverview, run_overview
from gymq.ext.viewer.histogram import Bar, histogram
from gymq.ext.viewer.run_states import RunState, read_queued, state_of
from gymq.protocol import subjects
from gymq.protocol.messages import Profile, Run
from gymq.protocol.subjects import RolloutId
from gymq.runs.stored_runs import Runs
from gymq.stats.running import RunningProfile, Slow

FRESH_S = 1.0  # how old a view may be; the profiler writes a checkpoint as often
MOST_SEARCHED = 1000  # failures of a run among which those of a rollout are looked for


class Failing(msgspec.Struct, frozen=True):
    """A rollout without a reward, as its dead letter reports it."""

    rollout: str  # "run/task/rollout"
    failure_class: str
    stage: str
    reason: str
    at: float  # Unix time, seconds


class RunView(msgspec.Struct, frozen=True):
    """All numbers of a run."""

    overview: RunOverview
    num_stored: int  # rollouts that have an outcome, failures included
    state: RunState
    num_queued: int  # tasks that are queued or in flight
    is_done: bool = False  # whether every rollout has one; False while their number is unknown
    sequence: int = 0  # stream sequence of the last outcome that is counted
    open_tasks: int = 0  # tasks whose rollouts have not all come; 0 once the run is done
    histograms: dict[str, list[Bar] | None] = {}  # of the rewards of each agent; None: too many different ones
    slowest: list[Slow] = []


@dataclass
class _Kept:
    at: float = -FRESH_S  # on the monotonic clock
    view: RunView | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class RunViews:
    """Reads runs; several pages that look at one run cost as much as one."""

    def __init__(self, bus: Bus, *, has_workers: bool) -> None:
        self._bus = bus
        self._has_workers = has_workers
        self._js = bus.js
        self._runs = Runs(bus)
        self._letters = DeadLetters(bus)
        self._kept: OrderedDict[str, _Kept] = OrderedDict()

    async def view(self, run: str) -> RunView:
        """Return a run's state, at most a second old.

        Raises:
            StatusError: 404; there is no such run.
            BusError, BadToken
        """
        kept = self._kept.setdefault(run, _Kept())
        self._kept.move_to_end(run)
        if len(self._kept) > 32:
            self._kept.popitem(last=False)
        async with kept.lock:
            if kept.view is None or time.monotonic() - kept.at >= FRESH_S:
                kept.view = await self._read(run, kept.view)
                kept.at = time.monotonic()
            return kept.view

    async def failures_of(self, rollout: RolloutId) -> list[Failing]:
        """Return the failures of one rollout that are among the newest of its run, the newest first.

        Raises:
            BusError
        """
        letters = [entry.letter for entry in reversed(await self._letters.newest(MOST_SEARCHED, rollout.run))]
        return [
            Failing(one.rollout, str(one.failure_class or "failed"), str(one.stage or ""), one.reason, one.at)
            for one in letters
            if one.rollout == str(rollout)
        ]

    async def has_task(self, run: str, task_index: int) -> bool:
        """Return whether a run has such a task, or may have: it has not ended, and its end is known.

        Raises:
            BusError, BadToken
        """
        if await self._js.count(streams.ROLLOUTS, subjects.ROLLOUT.of(run, task_index)):
            return True
        record = await self._runs.record(run)
        return record is not None and record.num_rollouts is not None and not (await self.view(run)).is_done

    async def _read(self, run: str, before: RunView | None) -> RunView:
        record, checkpoint = await self._runs.record(run), await read_profile(self._js, run)
        if record is None and checkpoint is None:
            raise run_not_found(run)
        record = record or Run(run=run, created_at=0.0)
        at = None if checkpoint is None else checkpoint.at
        sequence = 0 if checkpoint is None else checkpoint.sequence
        known = before if before is not None and before.sequence == sequence else None
        num_stored = await self._runs.num_stored(run)
        queued = await read_queued(self._bus, has_workers=self._has_workers)
        state, num_queued = state_of(record, num_stored, at, queued), queued.tasks.get(run, 0)
        now = (num_stored, state, num_queued, record.note, record.tags)
        if known is not None and now == _changing(known):
            return known
        is_done = record.num_rollouts is not None and num_stored >= record.num_rollouts
        view = RunView(run_overview(record, checkpoint), num_stored, state, num_queued, is_done)
        return view if checkpoint is None else await asyncio.to_thread(_profiled, view, checkpoint)


def _changing(view: RunView) -> tuple[int, RunState, int, str, list[str]]:
    """Return what changes between two checkpoints."""
    return view.num_stored, view.state, view.num_queued, view.overview.note, view.overview.tags


def _profiled(view: RunView, checkpoint: Profile) -> RunView:
    """Return a view with what the checkpoint of the run knows beside its totals."""
    try:
        profile = RunningProfile.from_state(checkpoint.state)
    except ValueError:  # another version saved it; the profiler counts all of it again
        return view
    counts = {name: profile.reward_counts(name) for name in view.overview.agents}
    return msgspec.structs.replace(
        view,
        sequence=checkpoint.sequence,
        # A task whose failures may be retried stays open in the profile, even when no retry follows.
        open_tasks=0 if view.is_done else checkpoint.snapshot.get("open_tasks", 0),
        histograms={name: None if values is None else histogram(values) for name, values in counts.items()},
        slowest=list(profile.slowest()),
    )
