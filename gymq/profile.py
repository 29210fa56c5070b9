"""Statistics of a run's results: per task and per agent."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from gymq.moments import is_usable, mean, median, sample_std
from gymq.rows import AGENT_REF, FAILURE_CLASS, MAX_INDEX, ROLLOUT_INDEX, TASK_INDEX

KEYS_SHOWN = 10
"""So many rollouts are named in an error about rollouts that lack something."""

Key = tuple[int, int]


class ProfileError(ValueError):
    """Rows and results of which no profile can be made. The text names the rollout."""


class InputRow(NamedTuple):
    """A materialised row, as much as the profile needs of it."""

    key: Key  # task and rollout index
    agent: str
    members: Mapping[str, Any]


class ResultRow(NamedTuple):
    """A result, as much as the profile needs of it."""

    key: Key
    numbers: dict[str, float]  # what is profiled
    info: dict[str, Any]  # its entry in `rollout_infos`


class Profile(NamedTuple):
    """Statistics of a run, in the form that is written."""

    groups: list[dict[str, Any]]  # per task, by task index
    agents: list[dict[str, Any]]  # per agent, by name


def profile(
    rows: Iterable[Mapping[str, Any]], results: Iterable[Mapping[str, Any]], allow_partial: bool = False
) -> Profile:
    """Statistics of a run's results, in any order.

    Args:
        rows: the materialised rows.
        results: the output rows.
        allow_partial: whether rows may lack a result; tasks without any result are then left out.

    Raises:
        ProfileError: a row or result is there twice or has no usable indices, a result has no row, or a row no result.
    """
    stream = ProfileStream(allow_partial=allow_partial)
    by_key = sorted((input_row(row) for row in rows), key=_key), sorted((result_row(row) for row in results), key=_key)
    groups = list(stream.groups(*by_key))
    return Profile(groups, stream.agents())


class ProfileStream:
    """Makes a profile of rows and results that come in the order of their keys, task after task.

    Attributes:
        num_rows: rows read so far.
        num_results: results read so far.
    """

    def __init__(self, *, allow_partial: bool = False) -> None:
        self._allow_partial = allow_partial
        self._agents: dict[str, dict[str, array[float]]] = {}
        self._agent_rollouts: dict[str, int] = {}
        self._without_result = _Unmatched()
        self._without_row = _Unmatched()
        self.num_rows = 0
        self.num_results = 0

    def groups(self, rows: Iterable[InputRow], results: Iterable[ResultRow]) -> Iterator[dict[str, Any]]:
        """The statistics of each task that has a result. They count only if no error comes at the end.

        Raises:
            ProfileError: as `profile`; or rows or results are not in the order of their keys.
        """
        results_by_task = groupby(_ascending(results, "result"), _task_index)
        waiting = next(results_by_task, None)
        for task_index, members in groupby(_ascending(rows, "row"), _task_index):
            expected = {row.key: row for row in members}
            self.num_rows += len(expected)
            while waiting is not None and waiting[0] < task_index:
                self._strangers(waiting[1])
                waiting = next(results_by_task, None)
            found: list[ResultRow] = []
            if waiting is not None and waiting[0] == task_index:
                found = self._matched(expected, waiting[1])
                waiting = next(results_by_task, None)
            self._note_missing(expected, found)
            if found:
                yield self._group(task_index, expected, found)
        while waiting is not None:
            self._strangers(waiting[1])
            waiting = next(results_by_task, None)
        self._refuse_unmatched()

    def agents(self) -> list[dict[str, Any]]:
        """The statistics of each agent, by name. To be called when all groups have been taken."""
        return [
            {**_describe(members, self._agent_rollouts[name]), AGENT_REF: {"name": name}}
            for name, members in sorted(self._agents.items())
        ]

    def _matched(self, expected: Mapping[Key, InputRow], results: Iterator[ResultRow]) -> list[ResultRow]:
        found = []
        for result in results:
            self.num_results += 1
            row = expected.get(result.key)
            if row is None:
                self._without_row.note(result.key)
                continue
            found.append(result)
            self._agent_rollouts[row.agent] = self._agent_rollouts.get(row.agent, 0) + 1
            members = self._agents.setdefault(row.agent, {})
            for name, value in result.numbers.items():
                members.setdefault(name, array("d")).append(value)
        return found

    def _strangers(self, results: Iterator[ResultRow]) -> None:
        for result in results:
            self.num_results += 1
            self._without_row.note(result.key)

    def _note_missing(self, expected: Mapping[Key, InputRow], found: Sequence[ResultRow]) -> None:
        have = {result.key for result in found}
        for key in expected:
            if key not in have:
                self._without_result.note(key)

    def _refuse_unmatched(self) -> None:
        if self._without_row.count:
            raise ProfileError(
                f"{self._without_row.count} results belong to no materialised row: rollouts {self._without_row}; "
                "are rows and results of the same run?"
            )
        if self._without_result.count and not self._allow_partial:
            raise ProfileError(
                f"{self._without_result.count} of {self.num_rows} materialised rows have no result: rollouts "
                f"{self._without_result}; allow a partial profile to leave them out"
            )

    def _group(self, task_index: int, expected: Mapping[Key, InputRow], found: list[ResultRow]) -> dict[str, Any]:
        values: dict[str, list[float]] = {}
        for result in found:
            for name, value in result.numbers.items():
                values.setdefault(name, []).append(value)
        sample = expected[found[0].key].members
        return {
            TASK_INDEX: task_index,
            **_describe(values, len(found)),
            "sample": {name: value for name, value in sample.items() if name not in (TASK_INDEX, ROLLOUT_INDEX)},
            "num_rollouts": len(found),
            "expected_num_rollouts": len(expected),
            "missing_num_rollouts": len(expected) - len(found),
            "reward_profile_completion_pct": 100.0 * len(found) / len(expected),
            "rollout_infos": [result.info for result in found],
        }


def input_row(row: Mapping[str, Any]) -> InputRow:
    """Take from a materialised row what the profile needs.

    Raises:
        ProfileError: it has no usable indices, or no agent.
    """
    key = row_key(row)
    reference = row.get(AGENT_REF)
    name = reference.get("name") if isinstance(reference, Mapping) else None
    if not isinstance(name, str):
        raise ProfileError(f"the row of rollout {key} names no agent: it needs `{AGENT_REF}` with a `name`")
    return InputRow(key, name, row)


def result_row(result: Mapping[str, Any]) -> ResultRow:
    """Take from a result what the profile needs.

    Raises:
        ProfileError: it is a failure, it has no usable indices or no response, or a number of it is too large.
    """
    key = row_key(result)
    if result.get(FAILURE_CLASS) is not None:
        raise ProfileError(
            f"the result of rollout {key} is a failure ({result[FAILURE_CLASS]}) without a reward of its own; "
            "failures do not belong among the results"
        )
    response = result.get("response")
    usage = (response.get("usage") or {}) if isinstance(response, Mapping) else None
    if not isinstance(usage, Mapping):
        raise ProfileError(f"the result of rollout {key} has no `response` object with a `usage` object or none")
    try:
        members = numeric_members(result)
        info = {
            "rollout_id": f"{key[0]}:{key[1]}",
            **_indices(result),
            "reward": result.get("reward"),
            **numeric_members(usage),
            **{name: value for name, value in members.items() if name != "reward"},
        }
        numbers = {name: float(value) for name, value in numeric_members({**result, **usage}).items()}
    except ProfileError as error:
        raise ProfileError(f"the result of rollout {key}: {error}") from None
    return ResultRow(key, numbers, {name: value for name, value in info.items() if value is not None})


def row_key(row: Mapping[str, Any]) -> Key:
    """Task and rollout index of a row or result.

    Raises:
        ProfileError: an index is missing, or not a whole number from 0 to `MAX_INDEX`.
    """
    indices = row.get(TASK_INDEX), row.get(ROLLOUT_INDEX)
    for name, index in zip((TASK_INDEX, ROLLOUT_INDEX), indices, strict=True):
        if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index <= MAX_INDEX:
            raise ProfileError(f"`{name}` of a row or result must be a whole number from 0, it is {index!r}")
    return indices  # type: ignore[return-value]


def numeric_members(members: Mapping[str, Any]) -> dict[str, float]:
    """The members that are profiled: numbers, and booleans as 0 and 1. NaN counts as missing, indices do not count.

    Raises:
        ProfileError: a number is infinite, or so large that its statistics would overflow.
    """
    numbers = {}
    for name, value in members.items():
        if not isinstance(value, int | float) or name in (TASK_INDEX, ROLLOUT_INDEX) or value != value:
            continue
        if not is_usable(value):
            raise ProfileError(f"`{name}` is {value:.6g}, too large to make statistics of")
        numbers[name] = int(value) if isinstance(value, bool) else value
    return numbers


def _describe(values: Mapping[str, Sequence[float]], num_rollouts: int) -> dict[str, float]:
    """Statistics of the members that a group of rollouts has; without an entry for what is undefined.

    A single value has no sample deviation, but where a group has a single rollout it is written as 0.
    """
    members = {name: _statistics(numbers, num_rollouts) for name, numbers in values.items()}
    return {
        f"{statistic}/{name}": found[statistic]
        for statistic in ("mean", "max", "min", "median", "std")
        for name, found in members.items()
        if statistic in found
    }


def _statistics(values: Sequence[float], num_rollouts: int) -> dict[str, float]:
    ordered = sorted(values)
    found = {"mean": mean(ordered), "max": ordered[-1], "min": ordered[0], "median": median(ordered)}
    std = 0.0 if num_rollouts == 1 else sample_std(ordered)
    return found if std is None else {**found, "std": std}


class _Unmatched:
    """Rollouts that lack their other half: how many, and the first of them."""

    def __init__(self) -> None:
        self.count = 0
        self._first: list[Key] = []

    def note(self, key: Key) -> None:
        self.count += 1
        if len(self._first) < KEYS_SHOWN:
            self._first.append(key)

    def __str__(self) -> str:
        shown = ", ".join(map(str, self._first))
        return shown if self.count <= KEYS_SHOWN else f"{shown}, …"


def _ascending(entries: Iterable[Any], what: str) -> Iterator[Any]:
    last: Key = (-1, -1)
    for entry in entries:
        if entry.key == last:
            raise ProfileError(f"there is more than one {what} of rollout {last}")
        if entry.key < last:
            raise ProfileError(f"the {what} of rollout {entry.key} comes after that of {last}: they are not sorted")
        last = entry.key
        yield entry


def _indices(row: Mapping[str, Any]) -> dict[str, Any]:
    return {TASK_INDEX: row.get(TASK_INDEX), ROLLOUT_INDEX: row.get(ROLLOUT_INDEX)}


def _key(entry: InputRow | ResultRow) -> Key:
    return entry.key


def _task_index(entry: InputRow | ResultRow) -> int:
    return entry.key[0]
