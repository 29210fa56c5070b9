"""Runs queries on a database and compares their rows. It lies in a sandbox, and only needs the standard library.

Messages on stdin and stdout are four bytes of length, eight of a number that the answer repeats, and JSON. A request is
`{"sql", "is_reference"}`: the rows of a reference are kept, those of the next query are compared with them. The answer
is `{"equal"}` (null for a reference) or `{"error"}`. Another process sends SIGALRM when the time of a query is over.
"""

from __future__ import annotations

import json
import signal
import sqlite3
import sys
from types import FrameType
from typing import Any
from urllib.parse import quote

MAX_ROWS = 1_000_000
_MAX_HEAP_BYTES = 512 * 1024**2  # of SQLite
_LONGEST_VALUE_BYTES = 64 * 1024**2
_STEPS = 10_000  # of SQLite's machine between two looks at the time
_NUMBER_BYTES = 8

_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
_FORBIDDEN_FUNCTIONS = {"load_extension"}
_READING_PRAGMAS = {
    *("table_info", "table_xinfo", "table_list", "index_list", "index_info", "index_xinfo", "foreign_key_list"),
    *("foreign_key_check", "integrity_check", "quick_check"),
}

Row = tuple[Any, ...]


class OutOfTimeError(Exception):
    """A query takes too long."""


class TooManyRowsError(Exception):
    """A query gives more rows than are taken."""


def main(path: str) -> None:
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    expected: set[Row] = set()
    while head := sys.stdin.buffer.read(4 + _NUMBER_BYTES):
        request = json.loads(sys.stdin.buffer.read(int.from_bytes(head[:4], "big")))
        answer: dict[str, Any]
        try:
            rows = _rows(path, request["sql"])
            answer = {"equal": None if request["is_reference"] else rows == expected}
            expected = rows if request["is_reference"] else set()
        except (sqlite3.Error, sqlite3.Warning, ArithmeticError, ValueError, MemoryError) as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        except (OutOfTimeError, TooManyRowsError) as error:
            answer = {"error": str(error)}
        body = json.dumps(answer).encode()
        sys.stdout.buffer.write(len(body).to_bytes(4, "big") + head[4:] + body)
        sys.stdout.buffer.flush()


def _rows(path: str, sql: str) -> set[Row]:
    connection = sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True)
    try:
        signal.signal(signal.SIGALRM, _on_alarm)
        try:
            _restrict(connection)
            return _fetched(connection.execute(sql))
        finally:
            signal.signal(signal.SIGALRM, signal.SIG_IGN)
    finally:
        connection.close()


def _restrict(connection: sqlite3.Connection) -> None:
    connection.execute(f"PRAGMA hard_heap_limit={_MAX_HEAP_BYTES}")
    connection.execute("PRAGMA query_only=ON")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE_BYTES)
    connection.text_factory = lambda data: data.decode(errors="ignore")
    connection.set_progress_handler(lambda: 0, _STEPS)  # the alarm is noticed where Python runs
    connection.set_authorizer(_authorize)


def _authorize(action: int, first: str | None, second: str | None, _database: str | None, _trigger: str | None) -> int:
    match action:
        case sqlite3.SQLITE_FUNCTION:
            allowed = (second or "").lower() not in _FORBIDDEN_FUNCTIONS
        case sqlite3.SQLITE_PRAGMA:
            allowed = second is None or (first or "").lower() in _READING_PRAGMAS
        case sqlite3.SQLITE_UPDATE:  # how functions that give tables are declared; nothing is written
            allowed = first == "sqlite_master"
        case _:
            allowed = action in _ALLOWED
    return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY


def _fetched(cursor: sqlite3.Cursor) -> set[Row]:
    if cursor.description is None:
        raise ValueError("the statement has no result")
    rows: set[Row] = set()
    for number, row in enumerate(cursor, 1):
        if number > MAX_ROWS:
            raise TooManyRowsError(f"more than {MAX_ROWS} rows")
        rows.add(row)
    return rows


def _on_alarm(_number: int, _frame: FrameType | None) -> None:
    raise OutOfTimeError("out of time")


if __name__ == "__main__":
    main(sys.argv[1])
