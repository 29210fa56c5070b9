"""Records of rollouts that stay flat in memory for millions of them: temporary SQLite databases on disk.

An empty database name makes SQLite keep the database in a temporary file that only this process sees and that is
gone when it is closed. A record may be filled in one thread and read in another, but not used in both at once.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any, Self

from gymq.errors import UsageError


class TemporaryDatabase:
    """A SQLite database with one table, gone when closed. Use it as a context manager."""

    def __init__(self, table: str) -> None:
        self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        # The file is not read after a crash, so neither journal nor syncing is worth its time.
        for setting in ("journal_mode = OFF", "synchronous = OFF", "cache_size = -32768"):
            self._database.execute(f"PRAGMA {setting}")
        self._database.execute(f"CREATE TABLE {table}")
        self._database.execute("BEGIN")
        self._cursor = self._database.cursor()

    def _execute(self, statement: str, values: tuple[Any, ...]) -> sqlite3.Cursor:
        try:
            return self._cursor.execute(statement, values)
        except sqlite3.OperationalError as error:
            text = f"a temporary file cannot be written: {error}; SQLITE_TMPDIR may name another folder for it"
            raise UsageError(text) from None

    def _row(self, statement: str, *values: Any) -> Any:
        return self._execute(statement, values).fetchone()

    def close(self) -> None:
        """Delete the record. It may be closed twice."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class DoneRollouts(TemporaryDatabase):
    """A set of (task, rollout) keys: which rollouts are done."""

    def __init__(self) -> None:
        super().__init__("done (task INTEGER, rollout INTEGER, PRIMARY KEY (task, rollout)) WITHOUT ROWID")
        self._count = 0

    def add(self, task_index: int, rollout_index: int) -> bool:
        """Add a key; False if it was there already."""
        cursor = self._execute("INSERT OR IGNORE INTO done VALUES (?, ?)", (task_index, rollout_index))
        self._count += cursor.rowcount
        return cursor.rowcount == 1

    def __contains__(self, key: tuple[int, int]) -> bool:
        return self._row("SELECT 1 FROM done WHERE task = ? AND rollout = ?", *key) is not None

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Yield the keys in ascending order."""
        return iter(self._database.execute("SELECT task, rollout FROM done ORDER BY task, rollout"))


class TaskCounts(TemporaryDatabase):
    """A number for each task: how many rollouts it has."""

    def __init__(self) -> None:
        super().__init__("counts (task INTEGER PRIMARY KEY, rollouts INTEGER)")

    def add(self, task_index: int, rollouts: int = 1) -> int:
        """Count more rollouts of a task; return their number before."""
        if self._execute("INSERT OR IGNORE INTO counts VALUES (?, ?)", (task_index, rollouts)).rowcount:
            return 0  # the usual case, and three times as fast as an upsert that returns the total
        before = self[task_index]
        self._execute("UPDATE counts SET rollouts = rollouts + ? WHERE task = ?", (rollouts, task_index))
        return before

    def __len__(self) -> int:
        """Return how many tasks were counted."""
        count: int = self._row("SELECT COUNT(*) FROM counts")[0]
        return count

    def __getitem__(self, task_index: int) -> int:
        """Return the number of rollouts of a task; 0 for a task that was never counted."""
        row: tuple[int] | None = self._row("SELECT rollouts FROM counts WHERE task = ?", task_index)
        return row[0] if row else 0


class FailedAttempts(TemporaryDatabase):
    """Failed attempts at rollouts: how many, and whether one of them forbids a retry."""

    def __init__(self) -> None:
        table = "failed (task INTEGER, rollout INTEGER, attempts INTEGER, terminal INTEGER"
        super().__init__(f"{table}, PRIMARY KEY (task, rollout)) WITHOUT ROWID")

    def add(self, task_index: int, rollout_index: int, *, terminal: bool) -> None:
        """Record one failed attempt."""
        statement = """INSERT INTO failed VALUES (?, ?, 1, ?)
            ON CONFLICT DO UPDATE SET attempts = attempts + 1, terminal = terminal | excluded.terminal"""
        self._execute(statement, (task_index, rollout_index, terminal))

    def of(self, task_index: int, rollout_index: int) -> tuple[int, bool]:
        """Return the number of failed attempts of a rollout, and whether another attempt is forbidden."""
        row = self._row(
            "SELECT attempts, terminal FROM failed WHERE task = ? AND rollout = ?", task_index, rollout_index
        )
        return (row[0], bool(row[1])) if row else (0, False)


class EarlierRows(TemporaryDatabase):
    """The rows of an earlier start of a run, to find them in another pass over the input, wherever they are in it."""

    def __init__(self) -> None:
        super().__init__(
            "rows (digest BLOB, task INTEGER, rollout INTEGER, now INTEGER, PRIMARY KEY (task, rollout)) WITHOUT ROWID"
        )
        self._execute("CREATE INDEX by_digest ON rows (digest)", ())
        self.num_missing = 0  # rows that were not found
        self.num_moved = 0  # rows that are of a task with another index in the other pass
        self.grown_to = 0  # if a task of these has more rollouts in the other pass: the most rollouts of such a task

    def add(self, task_index: int, rollout_index: int, digest: bytes) -> None:
        """Add a row, by a digest that does not depend on its task index; the first with its indices counts."""
        statement = "INSERT OR IGNORE INTO rows (digest, task, rollout) VALUES (?, ?, ?)"
        self.num_missing += self._execute(statement, (digest, task_index, rollout_index)).rowcount

    def find(self, task_index: int, rollout_index: int, digest: bytes) -> bool:
        """Look up a row of the other pass, once; return whether it is one of these rows."""
        found: tuple[int, int] | None = self._row(
            "SELECT task, rollout FROM rows WHERE digest = ? AND now IS NULL ORDER BY task != ?", digest, task_index
        )
        if found is None:
            if self._row("SELECT 1 FROM rows WHERE task = ? LIMIT 1", task_index) is not None:
                self.grown_to = max(self.grown_to, rollout_index + 1)
            return False
        self._execute("UPDATE rows SET now = ? WHERE task = ? AND rollout = ?", (task_index, *found))
        self.num_missing -= 1
        self.num_moved += found[0] != task_index
        return True

    def task_now(self, task_index: int, rollout_index: int) -> int | None:
        """Return the task of a row in the other pass; None if it was not found there."""
        found = self._row("SELECT now FROM rows WHERE task = ? AND rollout = ?", task_index, rollout_index)
        return found[0] if found else None

    def num_tasks(self) -> tuple[int, int]:
        """Return how many tasks these rows have, and how many of those were found."""
        found: tuple[int, int] = self._row(
            "SELECT COUNT(DISTINCT task), COUNT(DISTINCT CASE WHEN now IS NOT NULL THEN task END) FROM rows"
        )
        return found


class RunningNumbers(TemporaryDatabase):
    """Numbers distinct digests 0, 1, 2, … in order of first appearance."""

    def __init__(self) -> None:
        super().__init__("numbers (digest BLOB PRIMARY KEY, number INTEGER, line INTEGER) WITHOUT ROWID")
        self._next = 0

    def number(self, digest: bytes, line_number: int) -> tuple[int, int]:
        """Return the digest's number and the line that had it first; a new digest gets the next number."""
        values = (digest, self._next, line_number)
        if self._execute("INSERT OR IGNORE INTO numbers VALUES (?, ?, ?)", values).rowcount:
            self._next += 1
            return self._next - 1, line_number
        found: tuple[int, int] = self._row("SELECT number, line FROM numbers WHERE digest = ?", digest)
        return found
