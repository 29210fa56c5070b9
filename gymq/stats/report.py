"""The report of a run's results, per task and per agent, with the keys of NeMo Gym's report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from heapq import merge
from itertools import groupby
from typing import Any, NamedTuple

from gymq.data.rows import AGENT_REF, FAILURE_CLASS, MAX_INDEX, ROLLOUT_INDEX, TASK_INDEX, RowError
from gymq.stats.field_totals import FieldTotals, numeric_fields
from gymq.stats.sums import is_usable

Key = tuple[int, int]


class InputRow(NamedTuple):
    """The part of a materialised row that the report needs."""

    key: Key  # task and rollout index
    agent: str
    fields: Mapping[str, Any]


class ResultRow(NamedTuple):
    """The part of a result that the report needs."""

    key: Key
    numbers: dict[str, float]  # fields to profile
    info: dict[str, Any]  # its entry in `rollout_infos`


class ReportStream:
    """Makes a report of rows and results that are sorted by their keys, task after task."""

    def __init__(self, *, allow_partial: bool = False) -> None:
        self._allow_partial = allow_partial
        self._agents: dict[str, _Group] = {}
        self._without_result = _Unmatched()
        self._without_row = _Unmatched()
        self._num_rows = 0

    def groups(self, rows: Iterable[InputRow], results: Iterable[ResultRow]) -> Iterator[dict[str, Any]]:
        """Yield the statistics of each task that has a result; discard them if an error is raised at the end.

        Raises:
            RowError: a row or result occurs twice, a result has no row, or a row no result.
        """
        entries = merge(_distinct(rows, "row"), _distinct(results, "result"), key=_key)  # a row before its result
        for task_index, of_task in groupby(entries, lambda entry: entry.key[0]):
            expected: dict[Key, InputRow] = {}
            found: list[ResultRow] = []
            for entry in of_task:
                if isinstance(entry, InputRow):
                    expected[entry.key] = entry
                elif entry.key in expected:
                    found.append(entry)
                else:
                    self._without_row.note(entry.key)
            self._num_rows += len(expected)
            have = {result.key for result in found}
            for key in expected:
                if key not in have:
                    self._without_result.note(key)
            if found:
                yield self._group(task_index, expected, found)
        self._refuse_unmatched()

    def agents(self) -> list[dict[str, Any]]:
        """Return the statistics of each agent, by name. Call it after all groups have been taken."""
        return [{**group.statistics(), AGENT_REF: {"name": name}} for name, group in sorted(self._agents.items())]

    def _refuse_unmatched(self) -> None:
        if self._without_row.count:
            raise RowError(
                f"{self._without_row.count} results belong to no materialised row: rollouts {self._without_row}; "
                "are rows and results from the same run?"
            )
        if self._without_result.count and not self._allow_partial:
            raise RowError(
                f"{self._without_result.count} of {self._num_rows} materialised rows have no result: rollouts "
                f"{self._without_result}; allow a partial profile to leave them out"
            )

    def _group(self, task_index: int, expected: Mapping[Key, InputRow], found: list[ResultRow]) -> dict[str, Any]:
        group = _Group()
        for result in found:
            group.add(result.numbers)
            self._agents.setdefault(expected[result.key].agent, _Group()).add(result.numbers)
        sample = expected[found[0].key].fields
        return {
            TASK_INDEX: task_index,
            **group.statistics(),
            "sample": {name: value for name, value in sample.items() if name not in (TASK_INDEX, ROLLOUT_INDEX)},
            "num_rollouts": len(found),
            "expected_num_rollouts": len(expected),
            "missing_num_rollouts": len(expected) - len(found),
            "reward_profile_completion_pct": 100.0 * len(found) / len(expected),
            "rollout_infos": [result.info for result in found],
        }


def result_row(result: Mapping[str, Any]) -> ResultRow:
    """Return the part of a result that the report needs.

    Raises:
        RowError: it is a failure, it has no usable indices or no response, or its reward is too large.
    """
    key = row_key(result)
    if result.get(FAILURE_CLASS) is not None:
        raise RowError(
            f"the result of rollout {key} is a failure ({result[FAILURE_CLASS]}) without a reward; "
            "failures do not belong among the results"
        )
    response = result.get("response")
    usage = (response.get("usage") or {}) if isinstance(response, Mapping) else None
    if not isinstance(usage, Mapping):
        raise RowError(f"the result of rollout {key} has no `response` object with a `usage` object or none")
    reward = result.get("reward")
    if isinstance(reward, int | float) and reward == reward and not is_usable(reward):
        shown = f"{reward:.6g}" if isinstance(reward, float) else "an integer"
        raise RowError(f"the result of rollout {key}: `reward` is {shown}, too large for statistics")
    info = {
        "rollout_id": f"{key[0]}:{key[1]}",
        TASK_INDEX: result.get(TASK_INDEX),
        ROLLOUT_INDEX: result.get(ROLLOUT_INDEX),
        "reward": reward,
        **numeric_fields(usage),
        **{name: value for name, value in numeric_fields(result).items() if name != "reward"},
    }
    numbers = {name: float(value) for name, value in numeric_fields({**result, **usage}).items()}
    return ResultRow(key, numbers, {name: value for name, value in info.items() if value is not None})


def row_key(row: Mapping[str, Any]) -> Key:
    """Return task and rollout index of a row or result.

    Raises:
        RowError: an index is missing, or not a whole number from 0 to `MAX_INDEX`.
    """
    indices = row.get(TASK_INDEX), row.get(ROLLOUT_INDEX)
    for name, index in zip((TASK_INDEX, ROLLOUT_INDEX), indices, strict=True):
        if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index <= MAX_INDEX:
            raise RowError(f"`{name}` of a row or result must be an integer of at least 0, not {index!r}")
    return indices  # type: ignore[return-value]


class _Group:
    """The numbers of a group of rollouts."""

    def __init__(self) -> None:
        self._num_rollouts = 0
        self._fields: dict[str, FieldTotals] = {}

    def add(self, numbers: Mapping[str, float]) -> None:
        self._num_rollouts += 1
        for name, value in numbers.items():
            totals = self._fields.get(name)
            if totals is None:
                totals = self._fields[name] = FieldTotals()
            totals.add(value, max_distinct=None)

    def statistics(self) -> dict[str, float]:
        """Return the statistics of all fields, without undefined ones."""
        single = self._num_rollouts == 1
        found = {name: totals.stats(single=single) for name, totals in self._fields.items()}
        return {
            f"{statistic}/{name}": value
            for statistic in ("mean", "max", "min", "median", "std")
            for name, stats in found.items()
            if (value := getattr(stats, statistic)) is not None
        }


class _Unmatched:
    """Rollouts without a row or a result: their number, and the first of them."""

    def __init__(self) -> None:
        self.count = 0
        self._first: list[Key] = []

    def note(self, key: Key) -> None:
        self.count += 1
        if len(self._first) < 10:
            self._first.append(key)

    def __str__(self) -> str:
        shown = ", ".join(map(str, self._first))
        return shown if self.count == len(self._first) else f"{shown}, …"


def _distinct(entries: Iterable[Any], what: str) -> Iterator[Any]:
    last: Key | None = None
    for entry in entries:
        if entry.key == last:
            raise RowError(f"there is more than one {what} of rollout {last}")
        last = entry.key
        yield entry


def _key(entry: InputRow | ResultRow) -> Key:
    return entry.key
