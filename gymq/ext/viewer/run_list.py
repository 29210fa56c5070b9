"""The list of runs: what each is doing, how far it is, and what it has cost."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import msgspec

from gymq.bus import Bus
from gymq.execution.services.profiler import read_profile
from gymq.ext.shared.run_overview import RunOverview, run_overview
from gymq.ext.viewer.run_states import Queued, RunState, is_empty, read_queued, state_of
from gymq.protocol.messages import Run
from gymq.runs.stored_runs import Runs

PAGE = 25

RUN_SORTS = ("started", "run", "state", "reward", "pass_at_1", "tokens", "duration_s")


class RunRow(msgspec.Struct, frozen=True):
    """A run in the list."""

    overview: RunOverview
    state: RunState
    num_stored: int
    pass_at_1: float | None  # in percent, over the tasks of all agents; None: no rewards yet
    output_tokens: float | None
    duration_s: float | None  # from its start to the last rollout


class RunPage(msgspec.Struct, frozen=True):
    runs: list[RunRow]
    num_runs: int


class RunList:
    """Lists the runs of a bus."""

    def __init__(self, bus: Bus, *, has_workers: bool) -> None:
        self._bus = bus
        self._has_workers = has_workers
        self._runs = Runs(bus)

    async def page(self, skip: int, text: str, sort: str, *, is_descending: bool) -> RunPage:
        """Return a page of the runs that have a text in their name, tags, note or models.

        Raises:
            BusError
        """
        queued = await read_queued(self._bus, has_workers=self._has_workers)
        records = [one for one in await self._runs.records() if not is_empty(one, queued) and _has(one, text)]
        if sort == "started":
            shown = (records if is_descending else records[::-1])[skip : skip + PAGE]
            return RunPage([await self._row(one, queued) for one in shown], len(records))
        if sort == "run":
            shown = sorted(records, key=lambda one: one.run, reverse=is_descending)[skip : skip + PAGE]
            return RunPage([await self._row(one, queued) for one in shown], len(records))
        rows = [await self._row(one, queued) for one in records[:500]]
        return RunPage(_sorted(rows, sort, is_descending=is_descending)[skip : skip + PAGE], len(rows))

    async def all(self) -> AsyncIterator[RunRow]:
        """Yield all runs, the newest first.

        Raises:
            BusError
        """
        queued = await read_queued(self._bus, has_workers=self._has_workers)
        for record in await self._runs.records():
            if not is_empty(record, queued):
                yield await self._row(record, queued)

    async def _row(self, record: Run, queued: Queued) -> RunRow:
        overview = run_overview(record, await read_profile(self._bus.js, record.run))
        num_stored = overview.num_rewarded + sum(overview.failures.values())
        if num_stored != record.num_rollouts:  # some may have come since the checkpoint
            num_stored = await self._runs.num_stored(record.run)
        agents = list(overview.agents.values())
        first = overview.all.pass_at_k.get(1) if overview.all else None
        tokens = [fields.mean * fields.count for one in agents if (fields := one.fields.get("output_tokens"))]
        duration_s = overview.updated_at - record.created_at if overview.updated_at and record.created_at else None
        return RunRow(
            overview=overview,
            state=state_of(record, num_stored, overview.updated_at, queued),
            num_stored=num_stored,
            pass_at_1=None if first is None else first.value,
            output_tokens=sum(tokens) if tokens else None,
            duration_s=duration_s if duration_s and duration_s > 0 else None,
        )


def _has(record: Run, text: str) -> bool:
    wanted = text.lower()
    return any(wanted in part.lower() for part in (record.run, record.note, *record.tags, *record.models))


def _sorted(rows: Sequence[RunRow], sort: str, *, is_descending: bool) -> list[RunRow]:
    """Return rows by a field; those without a value are last."""
    if sort == "state":
        return sorted(rows, key=lambda row: row.state, reverse=is_descending)
    fields = {"reward": "mean_reward", "tokens": "output_tokens"}
    name = fields.get(sort, sort)
    values = [(getattr(row.overview if sort == "reward" else row, name), row) for row in rows]
    known = sorted((one for one in values if one[0] is not None), key=lambda one: one[0], reverse=is_descending)
    return [row for _, row in known] + [row for value, row in values if value is None]
