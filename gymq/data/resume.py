"""The remaining work of an interrupted run: rows without a result that may still be attempted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Self

import msgspec

from gymq.data.disk_index import DoneRollouts, FailedAttempts, TaskCounts
from gymq.data.jsonl import LineSource, numbered_lines, parse_object
from gymq.data.rows import (
    ATTEMPT_INDEX,
    FAILURE_CLASS,
    FAILURE_CURABLE,
    FAILURE_MESSAGE,
    FAILURE_SEQUENCE,
    FAILURE_TERMINAL,
    ROLLOUT_INDEX,
    TASK_INDEX,
    Index,
    MaterialisedRow,
    RowError,
    RowKey,
    decode_line,
    read_rows,
)
from gymq.processes.failing import OnFailure

MAX_ATTEMPTS = 3
"""Default limit on failed attempts at a rollout."""


class FailureRow(msgspec.Struct, frozen=True, gc=False):
    """A row of the failures file; a row without indices belongs to no rollout."""

    task_index: Index | None = msgspec.field(default=None, name=TASK_INDEX)
    rollout_index: Index | None = msgspec.field(default=None, name=ROLLOUT_INDEX)
    terminal: Any = msgspec.field(default=None, name=FAILURE_TERMINAL)
    curable: Any = msgspec.field(default=None, name=FAILURE_CURABLE)
    failure_class: str = msgspec.field(default="unknown", name=FAILURE_CLASS)
    message: str = msgspec.field(default="", name=FAILURE_MESSAGE)
    sequence: int | None = msgspec.field(default=None, name=FAILURE_SEQUENCE)


class _ResultRow(RowKey, frozen=True, gc=False):
    reward: Any = None


class FailureGroup(NamedTuple):
    """The rollouts of a run without a result whose last failure has the same class."""

    failure_class: str
    num_rollouts: int
    message: str  # of the first one
    task_index: int | None
    rollout_index: int | None
    may_be_retried: bool  # one of them at least, by a failure that another try may cure


class Resume:
    """Compares a run's materialised file with its output and failures. Use it as a context manager.

    Attributes:
        done: keys of the rollouts that have a result.
        failed_before: keys of the rollouts that have a failure, even if they have a result.
        failure_sequences: stream sequences of the failures.
        num_rows: rows of the materialised file.
    """

    def __init__(
        self,
        materialised: LineSource,
        completed: LineSource,
        failures: LineSource,
        *,
        max_attempts: int = MAX_ATTEMPTS,
        note_reward: Callable[[int, int, float], None] | None = None,
    ) -> None:
        """Read each of the three files once. A `max_attempts` below 1 means the default.

        Args:
            note_reward: called for each result with its task, the number of the task's rollouts, and its reward.

        Raises:
            RowError: a line cannot be read, a row occurs twice, or a result belongs to no row.
        """
        self._materialised = materialised
        self._completed = completed
        self._note_reward = note_reward
        self._max_attempts = max_attempts if max_attempts >= 1 else MAX_ATTEMPTS
        self._num_rollouts = TaskCounts()
        self._attempts = FailedAttempts()
        self.failed_before = DoneRollouts()
        self.failure_sequences: set[int] = set()
        self.done = DoneRollouts()
        with OnFailure(self.close):
            self.num_rows = self._read(failures)

    def close(self) -> None:
        """Release the temporary databases."""
        for record in (self.done, self._num_rollouts, self._attempts, self.failed_before):
            record.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def num_rollouts(self, task_index: int) -> int:
        """Return how many rollouts a task has in the whole run."""
        return self._num_rollouts[task_index]

    def num_failed(self) -> tuple[int, int]:
        """Return how many rollouts failed and have no result, and how many of these may not be retried."""
        left = [key for key in self.failed_before if key not in self.done]
        return len(left), sum(not self.may_run(*key) for key in left)

    def failed(self, failures: LineSource) -> list[FailureGroup]:
        """Group the rollouts that failed and have no result by the class of their last failure, the largest first."""
        last: dict[tuple[int, int], str] = {}
        first: dict[str, FailureRow] = {}
        retried: set[str] = set()
        for key, row in _failures(failures):
            if key not in self.done:
                last[key] = row.failure_class
                first.setdefault(row.failure_class, row)
                if row.curable or not row.terminal:
                    retried.add(row.failure_class)
        groups = [
            FailureGroup(
                name, count, first[name].message, first[name].task_index, first[name].rollout_index, name in retried
            )
            for name, count in Counter(last.values()).items()
        ]
        return sorted(groups, key=lambda group: -group.num_rollouts)

    def to_run(self) -> Iterator[MaterialisedRow]:
        """Yield the rows to run now, in the order of the materialised file.

        A row that failed before carries the number of failed attempts, also as `_ng_attempt_index` in its JSON.
        """
        for row in read_rows(self._materialised):
            if (row.task_index, row.rollout_index) in self.done:
                continue
            if not self.may_run(row.task_index, row.rollout_index):
                continue
            attempts, _ = self._attempts.of(row.task_index, row.rollout_index)
            yield _stamped(row, attempts) if attempts else row

    def may_run(self, task_index: int, rollout_index: int) -> bool:
        """Return whether a rollout without a result may be attempted, by its failures before this start."""
        attempts, terminal = self._attempts.of(task_index, rollout_index)
        return not terminal and attempts < self._max_attempts

    def count_failure(self, task_index: int, rollout_index: int, *, terminal: bool, curable: bool) -> None:
        """Count a failure from before this start as an attempt, unless the set-up was wrong."""
        self.failed_before.add(task_index, rollout_index)
        if not curable:
            self._attempts.add(task_index, rollout_index, terminal=terminal)

    def _read(self, failures: LineSource) -> int:
        with DoneRollouts() as expected:
            for row in read_rows(self._materialised):
                if not expected.add(row.task_index, row.rollout_index):
                    key = (row.task_index, row.rollout_index)
                    raise RowError(f"{self._materialised.name}:{row.line_number}: rollout {key} occurs twice")
                self._num_rollouts.add(row.task_index)
            self._read_completed(expected)
            self._read_failures(failures)
            return len(expected)

    def _read_completed(self, expected: DoneRollouts) -> None:
        for number, where, line in numbered_lines(self._completed):
            result = decode_line(line, _ResultRow, where)
            key = (result.task_index, result.rollout_index)
            if key not in expected:
                raise RowError(
                    f"{self._completed.name}:{number}: rollout {key} is not in {self._materialised.name}; "
                    "are both files from the same run?"
                )
            is_new = self.done.add(*key)
            if is_new and self._note_reward is not None and isinstance(result.reward, int | float):
                self._note_reward(result.task_index, self._num_rollouts[result.task_index], float(result.reward))

    def _read_failures(self, failures: LineSource) -> None:
        for key, row in _failures(failures):
            self.count_failure(*key, terminal=bool(row.terminal), curable=bool(row.curable))
            if row.sequence is not None:
                self.failure_sequences.add(row.sequence)


def _failures(source: LineSource) -> Iterator[tuple[tuple[int, int], FailureRow]]:
    """Yield the rows that are about a rollout, each with its key; blank lines are skipped."""
    for _, where, line in numbered_lines(source):
        row = decode_line(line, FailureRow, where)
        if row.task_index is not None and row.rollout_index is not None:
            yield (row.task_index, row.rollout_index), row


def _stamped(row: MaterialisedRow, attempts: int) -> MaterialisedRow:
    fields: dict[str, Any] = {**parse_object(row.json), ATTEMPT_INDEX: attempts}
    return msgspec.structs.replace(row, json=msgspec.json.encode(fields), attempt=attempts)
