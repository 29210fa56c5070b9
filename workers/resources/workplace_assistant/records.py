"""What the tools of all tables have in common: finding, replacing and numbering rows, pages of results."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from gymq.workers.resources.workplace_assistant.tables import Row, Table

# Says for each text whether the pattern occurs in it.
Matcher = Callable[[str, list[str]], Awaitable[list[bool]]]

PAGE_SIZE = 5


def find(table: Table, column: str, value: Any) -> Row | None:
    """Return the first row with this value."""
    return next((row for row in table if row[column] == value), None)


def without(table: Table, column: str, value: Any) -> Table:
    """Return the table without the rows with this value."""
    return tuple(row for row in table if row[column] != value)


def deleted(table: Table, column: str, value: Any, what: str) -> tuple[Table, str]:
    """Return the table without the row of an id, and the answer to the model; `what` names one row, such as `Event`."""
    if not value:
        return table, f"{what} ID not provided."
    if find(table, column, value) is None:
        return table, f"{what} not found."
    return without(table, column, value), f"{what} deleted successfully."


def field_of(table: Table, column: str, value: Any, field: Any, what: str) -> Row | str:
    """Return one field of the row of an id, or the answer that there is none."""
    if not value:
        return f"{what} ID not provided."
    if not field:
        return "Field not provided."
    row = find(table, column, value)
    if row is None:
        return f"{what} not found."
    return {field: row[field]} if field in row else "Field not found."


def updated(table: Table, column: str, value: Any, changes: Row) -> Table:
    """Return the table with changes in the rows with this value."""
    return tuple({**row, **changes} if row[column] == value else row for row in table)


def added(table: Table, column: str, values: Row) -> tuple[Table, str]:
    """Return the table with another row, and its id."""
    new_id = f"{next_id(table, column):08}"
    return (*table, {column: new_id, **values}), new_id


def next_id(table: Table, column: str) -> int:
    """Return one more than the largest id; ids are text and compared as text."""
    return int(max((row[column] for row in table), default="0")) + 1


def page_of(kind: str, rows: Sequence[Row], page: int, page_size: int) -> dict[str, Any]:
    """Return one page of `rows`, under the name `kind`; a page outside is moved to the nearest one.

    Raises:
        ValueError: the page size is not positive.
    """
    if page_size < 1:
        raise ValueError(f"page_size is {page_size}, but a page has at least one entry")
    total_pages = -(-len(rows) // page_size)
    page = max(1, min(page, total_pages))
    return {
        kind: list(rows[(page - 1) * page_size : page * page_size]),
        "pagination": {
            f"total_{kind}": len(rows),
            "page": page,
            "page_size": page_size,
            "total_pages": total_pages,
        },
    }


def choices(values: Iterable[str]) -> str:
    """Allowed values as a text."""
    return ", ".join(f"'{value}'" for value in values)


def matches(pattern: str, texts: list[str]) -> list[bool]:
    """For each text, whether the pattern occurs in it, in upper or lower case.

    Raises:
        re.error: the pattern is malformed.
    """
    compiled = re.compile(pattern, re.IGNORECASE)
    return [compiled.search(text) is not None for text in texts]


async def matching_rows(rows: Sequence[Row], columns: Sequence[str], pattern: str, matcher: Matcher) -> list[Row]:
    """Return the rows where the pattern occurs in one of the columns. Cells without a text match nothing."""
    cells = [(row, row[column]) for row in rows for column in columns if isinstance(row[column], str)]
    found = await matcher(pattern, [text for _, text in cells])
    hits = {id(row) for (row, _), hit in zip(cells, found, strict=True) if hit}
    return [row for row in rows if id(row) in hits]
