"""The look of tables that list things."""

from __future__ import annotations

from collections.abc import Collection

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

MAX_WIDTH = 1000  # characters of a table that is printed whole


def listing(title: str, *columns: str, numbers: Collection[str] = (), caption: str | None = None) -> Table:
    """An empty table with hardly any frame, so that it fits on narrow terminals.

    Args:
        columns: the headings, in order. Texts are folded where there is no room.
        numbers: those of the headings below which numbers stand; they are never folded.
    """
    table = Table(
        title=title,
        caption=caption,
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        padding=(0, 1, 0, 0),
    )
    for heading in columns:
        if heading in numbers:
            table.add_column(heading, justify="right", no_wrap=True, min_width=len(heading))
        else:
            table.add_column(heading, overflow="fold")
    return table


def whole_width(console: Console, table: Table) -> int:
    """Return the columns that a table needs so that nothing in it is cut or folded."""
    return Measurement.get(console, console.options.update(max_width=MAX_WIDTH), table).maximum
