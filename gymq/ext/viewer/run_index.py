"""The rollouts of a run as short rows in memory: for sorting, for tasks at a glance, and for comparing two runs.

A run is read once, a second at a time, and then only what is new in it. What is asked before all of it is read is
answered from what is known so far, and says so. Of a larger run the first `MOST_ROWS` rollouts count as all.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Literal, NamedTuple

import msgspec

from gymq.bus import Bus
from gymq.bus.queue.outcome_store import OutcomeStore
from gymq.ext.viewer.columns import MOST_COLUMNS
from gymq.ext.viewer.failure_groups import FailureKinds, failure_groups
from gymq.ext.viewer.rollout_list import YIELD_EVERY, RolloutRow, Wanted, row
from gymq.ext.viewer.run_charts import RunCharts, run_charts
from gymq.stats.intervals import Estimate, TaskMeans
from gymq.stats.sums import is_usable

READ_S = 0.6  # of one request
MOST_ROWS = 50_000  # of a run; one or two kilobytes each
MOST_RUNS = 4  # unless more are compared
TASKS_PAGE = 60

SORTS = (
    *("task", "reward", "turns", "output_tokens", "duration_s", "started_at", "failure_class", "prompt", "expected"),
    *("agent", "attempt", "worker", "policy_version", "is_truncated"),
)
"""Fields of a row by which rollouts are sorted, beside those of rows and verdicts."""

Order = Literal["task", "failure", "reward"]


class RowsPage(msgspec.Struct, frozen=True):
    rows: list[RolloutRow]
    num_matching: int
    num_read: int
    is_whole: bool  # whether all rollouts so far are read
    columns: list[str]  # fields of rows and verdicts that some of them have


class Neighbours(msgspec.Struct, frozen=True):
    """The rollouts before and after one in an order, as task and rollout index."""

    previous: tuple[int, int] | None
    next: tuple[int, int] | None
    num_before: int
    num_rollouts: int  # in this order
    is_whole: bool


class TaskRow(msgspec.Struct, frozen=True):
    """A task with the rewards of its rollouts; a failed one has none."""

    task_index: int
    prompt: str
    rollouts: list[tuple[int, float | None]]
    mean: float | None
    is_uniform: bool  # whether several rollouts have the same reward: a group that no policy gradient comes from


class TasksPage(msgspec.Struct, frozen=True):
    tasks: list[TaskRow]
    num_tasks: int
    num_uniform: int
    is_whole: bool


class TaskPair(msgspec.Struct, frozen=True):
    """A task that both of two runs have, and what further runs have of it."""

    task_index: int
    prompt: str
    left: TaskRow
    right: TaskRow
    difference: float | None  # of the mean rewards, right minus left
    more: list[TaskRow | None]  # of the further runs, in their order


class RunDifference(msgspec.Struct, frozen=True):
    """A run beside the one that it is compared with, over the tasks that both have."""

    run: str
    difference: Estimate | None  # of the mean reward of a task, this run minus the other
    num_better: int
    num_worse: int
    num_equal: int
    num_tasks: int  # that both have


class RunComparison(msgspec.Struct, frozen=True):
    """Runs task by task."""

    differences: list[RunDifference]  # of each run to the first one
    num_tasks: int  # that the first two have
    tasks: list[TaskPair]
    is_whole: bool


class _Index(NamedTuple):
    rows: dict[tuple[int, int], RolloutRow]
    columns: dict[str, None]
    lock: asyncio.Lock


class RunIndexes:
    """The indexes of the runs that were looked at last."""

    def __init__(self, bus: Bus) -> None:
        self._store = OutcomeStore(bus)
        self._kept: OrderedDict[str, _Index] = OrderedDict()

    async def page(self, run: str, wanted: Wanted, sort: str, *, is_descending: bool, skip: int) -> RowsPage:
        """Return a page of the rollouts that match, sorted by one of `SORTS` or by a field such as `verdict.accuracy`.

        Raises:
            BusError, BadToken
        """
        rows, is_whole = await self._read(run)
        matching = [one for one in rows if wanted.fits(one)]
        ordered = _sorted(matching, sort, is_descending=is_descending)
        kept = self._kept.get(run)  # gone where many runs are looked at
        columns = [] if kept is None else sorted(kept.columns)
        return RowsPage(ordered[skip : skip + 50], len(matching), len(rows), is_whole, columns)

    async def neighbours(self, run: str, task_index: int, rollout_index: int, order: Order) -> Neighbours:
        """Return the rollouts beside one, which need not be in the order itself.

        Raises:
            BusError, BadToken
        """
        rows, is_whole = await self._read(run)
        here = next((_key(one, order) for one in rows if _of(one) == (task_index, rollout_index)), None)
        if here is None:
            here = (0.0, task_index, rollout_index)
        kept = [one for one in rows if order == "task" or (one.failure_class is None) == (order == "reward")]
        ordered = sorted((_key(one, order), _of(one)) for one in kept)
        before = [of for at, of in ordered if at < here]
        after = [of for at, of in ordered if at > here]
        return Neighbours(
            before[-1] if before else None, after[0] if after else None, len(before), len(ordered), is_whole
        )

    async def tasks(self, run: str, sort: str, *, is_uniform: bool, skip: int) -> TasksPage:
        """Return a page of the tasks, by index or (`mean`, `spread`) by their rewards.

        Args:
            is_uniform: only those whose rollouts all have the same reward.

        Raises:
            BusError, BadToken
        """
        rows, is_whole = await self._read(run)
        tasks = _tasks(rows)
        uniform = [task for task in tasks if task.is_uniform]
        shown = uniform if is_uniform else tasks
        if sort == "mean":
            shown = sorted(shown, key=lambda task: (task.mean is None, task.mean or 0.0, task.task_index))
        elif sort == "spread":
            shown = sorted(shown, key=lambda task: (-_spread(task), task.task_index))
        return TasksPage(shown[skip : skip + TASKS_PAGE], len(tasks), len(uniform), is_whole)

    async def charts(self, run: str) -> RunCharts:
        """Return the charts of a run.

        Raises:
            BusError, BadToken
        """
        rows, is_whole = await self._read(run)
        return await asyncio.to_thread(run_charts, rows, is_whole=is_whole)

    async def failure_groups(self, run: str) -> FailureKinds:
        """Return the failures of a run by class and message.

        Raises:
            BusError, BadToken
        """
        rows, is_whole = await self._read(run)
        return failure_groups(rows, is_whole=is_whole)

    async def comparison(
        self,
        left: str,
        others: Sequence[str],
        sort: str,
        skip: int = 0,
        limit: int = TASKS_PAGE,
        *,
        around: int | None = None,
    ) -> RunComparison:
        """Return runs task by task: by index, or those first for which the second run is worse or better.

        Args:
            others: the runs beside `left`, at least one.
            around: a task; it, the one before and the one after are all that is listed.

        Raises:
            BusError, BadToken
        """
        runs = (left, *others)
        found = [await self._read(run, max(MOST_RUNS, len(runs))) for run in runs]
        of_left, *beside = [{task.task_index: task for task in _tasks(rows)} for rows, _ in found]
        pairs = [
            TaskPair(
                index, one.prompt, one, beside[0][index], _difference(one, beside[0][index]), _more(index, beside[1:])
            )
            for index, one in of_left.items()
            if index in beside[0]
        ]
        if sort != "task":
            sign = -1 if sort == "better" else 1
            pairs.sort(key=lambda pair: (pair.difference is None, sign * (pair.difference or 0.0), pair.task_index))
        if around is not None:
            at = next((number for number, pair in enumerate(pairs) if pair.task_index == around), len(pairs))
            skip, limit = max(0, at - 1), 3 if at else 2
        return RunComparison(
            [_run_difference(run, of_left, tasks) for run, tasks in zip(others, beside, strict=True)],
            len(pairs),
            pairs[skip : skip + limit],
            all(is_whole for _, is_whole in found),
        )

    async def everything(self, run: str) -> tuple[list[RolloutRow], list[TaskRow]]:
        """Return all rollouts of a run, `MOST_ROWS` at most, and its tasks.

        Raises:
            BusError, BadToken
        """
        while True:
            rows, is_whole = await self._read(run)
            if is_whole:
                return _sorted(rows, "task", is_descending=False), _tasks(rows)

    async def _read(self, run: str, most_kept: int = MOST_RUNS) -> tuple[list[RolloutRow], bool]:
        """Return the rows that are known after reading on for a while, and whether they are all there are."""
        index = self._kept.setdefault(run, _Index({}, {}, asyncio.Lock()))
        self._kept.move_to_end(run)
        while len(self._kept) > most_kept:
            self._kept.popitem(last=False)
        async with index.lock:
            is_whole = await self._read_on(run, index)
            if is_whole and await self._is_outdated(run, index):
                index.rows.clear()
                index.columns.clear()
                is_whole = await self._read_on(run, index)
        return list(index.rows.values()), is_whole

    async def _is_outdated(self, run: str, index: _Index) -> bool:
        """Return whether the oldest row is of a rollout that is stored no more: the run was deleted since."""
        oldest = next(iter(index.rows), None)
        return oldest is not None and await self._store.find(run, *oldest) is None

    async def _read_on(self, run: str, index: _Index) -> bool:
        give_up = time.monotonic() + READ_S
        rows = index.rows
        after = max((one.position for one in rows.values()), default=0)
        number = 0
        if len(rows) >= MOST_ROWS:
            return True
        async for sequence, outcome in self._store.read(run, after=after, batch=256):
            if number and time.monotonic() > give_up:
                return False
            # A failure that was replaced goes, so that the newest stays the last.
            rows.pop((outcome.task_index, outcome.rollout_index), None)
            read = rows[outcome.task_index, outcome.rollout_index] = row(sequence, outcome)
            new = [name for name in read.details if name not in index.columns]
            index.columns.update(dict.fromkeys(new[: MOST_COLUMNS - len(index.columns)]))
            number += 1
            if len(rows) >= MOST_ROWS:
                return True
            if number % YIELD_EVERY == 0:
                await asyncio.sleep(0)
        return True


def _of(one: RolloutRow) -> tuple[int, int]:
    return one.task_index, one.rollout_index


def _key(one: RolloutRow, order: Order) -> tuple[float, int, int]:
    return (one.reward or 0.0) if order == "reward" else 0.0, one.task_index, one.rollout_index


def _sorted(rows: list[RolloutRow], sort: str, *, is_descending: bool) -> list[RolloutRow]:
    """Return rows by a field; those without a value are last."""
    by_task = sorted(rows, key=_of, reverse=is_descending and sort == "task")
    if sort == "task":
        return by_task
    values = [(one.details.get(sort) if "." in sort else getattr(one, sort), one) for one in by_task]
    known = [(value, one) for value, one in values if value not in (None, "")]
    known.sort(key=lambda pair: (isinstance(pair[0], str), pair[0]), reverse=is_descending)
    return [one for _, one in known] + [one for value, one in values if value in (None, "")]


def _tasks(rows: Iterable[RolloutRow]) -> list[TaskRow]:
    found: dict[int, list[RolloutRow]] = {}
    for one in rows:
        found.setdefault(one.task_index, []).append(one)
    return [_task(task_index, sorted(found[task_index], key=_of)) for task_index in sorted(found)]


def _task(task_index: int, rows: list[RolloutRow]) -> TaskRow:
    rewards = [one.reward for one in rows if one.reward is not None and is_usable(one.reward)]
    return TaskRow(
        task_index=task_index,
        prompt=rows[0].prompt,
        rollouts=[(one.rollout_index, one.reward) for one in rows],
        mean=fmean(rewards) if rewards else None,
        is_uniform=len(rewards) > 1 and min(rewards) == max(rewards),
    )


def _spread(task: TaskRow) -> float:
    rewards = [reward for _, reward in task.rollouts if reward is not None]
    return max(rewards) - min(rewards) if rewards else -1.0


def _run_difference(run: str, of_left: Mapping[int, TaskRow], tasks: Mapping[int, TaskRow]) -> RunDifference:
    common = [(of_left[index], tasks[index]) for index in of_left if index in tasks]
    found = [difference for pair in common if (difference := _difference(*pair)) is not None]
    return RunDifference(
        run,
        paired_difference(found),
        sum(difference > 0 for difference in found),
        sum(difference < 0 for difference in found),
        sum(difference == 0 for difference in found),
        len(common),
    )


def _more(task_index: int, further: Sequence[Mapping[int, TaskRow]]) -> list[TaskRow | None]:
    return [tasks.get(task_index) for tasks in further]


def _difference(left: TaskRow, right: TaskRow) -> float | None:
    return None if left.mean is None or right.mean is None else right.mean - left.mean


def paired_difference(differences: Sequence[float]) -> Estimate | None:
    """Return the mean of the differences that tasks show between two runs, with its interval.

    The difficulty of a task affects both values, so the interval is narrower than those of the two means suggest.
    Source: Miller, "Adding Error Bars to Evals", arXiv:2411.00640, section 4.2.

    Args:
        differences: one finite difference for each task that both runs have.

    Returns:
        None if there are no tasks.
    """
    means = TaskMeans()
    for difference in differences:
        means.add(difference)
    return means.estimate()
