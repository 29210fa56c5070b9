"""The office's tables: reading them, giving each session its own, comparing two of them.

Rows are never changed in place, and a table is replaced as a whole. A session's tables are therefore cheap: they share
everything with the original until they change.
"""

from __future__ import annotations

import csv
import functools
import io
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from gymq.errors import GymqError

Row = dict[str, Any]
Table = tuple[Row, ...]
Tool = Callable[..., Any]  # takes the tables, then what the model gives by name

EMAIL_COLUMNS = ("email_id", "inbox/outbox", "sender/recipient", "subject", "sent_datetime", "body")
EVENT_COLUMNS = ("event_id", "event_name", "participant_email", "event_start", "duration")
VISIT_COLUMNS = (
    *("date_of_visit", "visitor_id", "page_views", "session_duration_seconds", "traffic_source", "user_engaged"),
)
TASK_COLUMNS = ("task_id", "task_name", "assigned_to_email", "list_name", "due_date", "board")
CUSTOMER_COLUMNS = (
    *("customer_id", "assigned_to_email", "customer_name", "customer_email", "customer_phone", "last_contact_date"),
    *("product_interest", "status", "follow_up_by", "notes"),
)

# Columns whose values are names of a fixed list, where case matters.
CASE_SENSITIVE = frozenset({"status", "list_name", "board"})


@dataclass
class Tables:
    """All tables of one office."""

    emails: Table
    events: Table
    tasks: Table
    customers: Table
    visits: Table
    addresses: tuple[str, ...]
    plots: Table = ()

    def copy(self) -> Tables:
        """Tables that can change without changing these."""
        return replace(self)


class BadTables(GymqError, ValueError):
    """The folder does not have the tables; the text names the missing ones."""


@functools.cache
def load_tables(folder: Path) -> Tables:
    """The tables in a folder. Every cell is text; an empty one is None.

    Raises:
        BadTables: a file or a column is missing.
    """
    return Tables(
        emails=_read(folder / "emails.csv", EMAIL_COLUMNS),
        events=_read(folder / "calendar_events.csv", EVENT_COLUMNS),
        tasks=_read(folder / "project_tasks.csv", TASK_COLUMNS),
        customers=_read(folder / "customer_relationship_manager_data.csv", CUSTOMER_COLUMNS),
        visits=_read(folder / "analytics_data.csv", VISIT_COLUMNS),
        addresses=tuple(_text(folder / "email_addresses.csv").split()),
    )


def same_tables(one: Tables, other: Tables) -> bool:
    """Return whether both hold the same rows in the same order; upper and lower case differ only where it matters."""
    return all(_same_rows(getattr(one, field.name), getattr(other, field.name)) for field in fields(Tables))


def _read(path: Path, columns: tuple[str, ...]) -> Table:
    lines = csv.DictReader(io.StringIO(_text(path), newline=""))
    missing = set(columns) - set(lines.fieldnames or ())
    if missing:
        raise BadTables(f"{path} lacks the columns {', '.join(sorted(missing))}")
    return tuple({column: line[column] or None for column in columns} for line in lines)


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise BadTables(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadTables(f"{path} is not UTF-8") from None


def _same_rows(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    return len(one) == len(other) and all(
        row is twin or _comparable(row) == _comparable(twin) for row, twin in zip(one, other, strict=True)
    )


def _comparable(row: Row) -> dict[str, tuple[bool, Any]]:
    """Return the row, lower case where case does not matter. The number 30 is 30.0, but not the text "30"; 1 is not
    true.
    """
    return {
        column: (
            isinstance(value, bool),
            value.lower() if isinstance(value, str) and column not in CASE_SENSITIVE else value,
        )
        for column, value in row.items()
    }
