"""Runs as the page shows them, made of the profiler's checkpoints: nothing here grows with what is stored."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from dataclasses import dataclass, field

import msgspec

from gymq.bridge.failures import not_found
from gymq.bridge.web.histogram import Bar, histogram
from gymq.bus import Bus
from gymq.dead_letters import DeadLetters
from gymq.jetstream import JetStream
from gymq.messages import Profile, Run
from gymq.overview import RunOverview, run_overview
from gymq.profiler import read_profile
from gymq.running import RunningProfile, Slow
from gymq.runs import Runs

PAGE = 25  # runs on a page of the list
FRESH_S = 1.0  # how old a view may be; the profiler writes a checkpoint as often
MOST_KEPT = 32  # runs whose view is kept
MOST_FAILURES = 20


class Failing(msgspec.Struct, frozen=True):
    """A rollout without a reward, as its dead letter tells."""

    rollout: str  # "run/task/rollout"
    failure_class: str
    stage: str
    reason: str
    at: float  # Unix time, seconds


class RunView(msgspec.Struct, frozen=True):
    """All numbers of a run."""

    overview: RunOverview
    sequence: int  # stream sequence of the last outcome that is counted
    open_tasks: int
    histograms: dict[str, list[Bar] | None]  # of the rewards of each agent; None: too many different ones
    slowest: list[Slow]
    failing: list[Failing]  # the newest first


@dataclass
class _Kept:
    at: float = -FRESH_S  # on the monotonic clock
    view: RunView | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class RunViews:
    """Reads runs; several pages that look at one run cost as much as one."""

    def __init__(self, bus: Bus) -> None:
        self._js = JetStream(bus)
        self._runs = Runs(bus)
        self._letters = DeadLetters(bus)
        self._kept: OrderedDict[str, _Kept] = OrderedDict()

    async def newest(self, skip: int, text: str) -> tuple[list[RunOverview], int]:
        """A page of the runs whose name holds `text`, the newest first; and how many there are.

        Raises:
            BusError
        """
        records = [record for record in await self._runs.records() if text in record.run]
        shown = records[skip : skip + PAGE]
        return [run_overview(record, await read_profile(self._js, record.run)) for record in shown], len(records)

    async def view(self, run: str) -> RunView:
        """A run, at most a second old.

        Raises:
            BridgeError: 404; there is no such run.
            BusError, BadToken
        """
        kept = self._kept.setdefault(run, _Kept())
        self._kept.move_to_end(run)
        if len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        async with kept.lock:
            if kept.view is None or time.monotonic() - kept.at >= FRESH_S:
                kept.view = await self._read(run, kept.view)
                kept.at = time.monotonic()
            return kept.view

    async def _read(self, run: str, before: RunView | None) -> RunView:
        record, checkpoint = await self._runs.record(run), await read_profile(self._js, run)
        if record is None and checkpoint is None:
            raise not_found(f"there is no run {run}")
        record = record or Run(run=run, created_at=0.0)
        if before is not None and checkpoint is not None and before.overview.updated_at == checkpoint.at:
            return before
        failing = []
        for buried in reversed(await self._letters.newest(MOST_FAILURES, run)):
            letter = buried.letter
            if letter.rollout:
                of = (str(letter.failure_class or "failed"), str(letter.stage or ""))
                failing.append(Failing(letter.rollout, *of, letter.reason, letter.at))
        return await asyncio.to_thread(_view, record, checkpoint, failing)


def _view(record: Run, checkpoint: Profile | None, failing: list[Failing]) -> RunView:
    overview = run_overview(record, checkpoint)
    if checkpoint is None:
        return RunView(overview, 0, 0, {}, [], failing)
    profile = RunningProfile.from_state(checkpoint.state)
    counts = {name: profile.reward_counts(name) for name in overview.agents}
    histograms = {name: None if values is None else histogram(values) for name, values in counts.items()}
    open_tasks = checkpoint.snapshot.get("open_tasks", 0)
    return RunView(overview, checkpoint.sequence, open_tasks, histograms, list(profile.slowest()), failing)
