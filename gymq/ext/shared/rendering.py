"""The look of what several commands beside the core print."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from rich.table import Table
from rich.text import Text

from gymq.render import printable

STATUS_STYLES = {"ok": "green", "failed": "red", "none": "dim"}  # of a check


def first_words(text: str, limit: int) -> Text:
    """Return the beginning of a text on one line, `limit` characters at most."""
    line = " ".join(text[: limit * 4].split())
    return printable(line if len(line) <= limit else f"{line[: limit - 1]}…")


def shown_time(unix_s: float) -> str:
    """Return local date and time; `-` for an unknown time."""
    return datetime.fromtimestamp(unix_s).strftime("%Y-%m-%d %H:%M") if unix_s else "-"


def facts_table(facts: Iterable[tuple[str, str]]) -> Table:
    """Return names and texts side by side; a long text is folded, and copied whole."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(printable(name, "bold"), printable(value))
    return table
