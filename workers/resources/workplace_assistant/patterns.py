"""Searching by a regular expression that a model wrote. It may need exponential time, so it runs in a process."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence

from gymq.workers.resources.workplace_assistant.tables import Row

# Says for each text whether the pattern occurs in it.
Matcher = Callable[[str, list[str]], Awaitable[list[bool]]]


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
