"""The look of what commands print: texts, quantities and tables.

Text by models and strangers is made safe for a terminal. Names are whole at any width, in tables and in sentences, and
a pipe gets every line whole.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import TextIO

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

_AGENT_SUFFIX = "_simple_agent"  # what the agent of most environments is called, behind their name
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
# Everything that moves the cursor, starts an escape sequence or turns the direction; line ends and tabs stay.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def printable(text: str, style: str = "") -> Text:
    """Return the text unchanged, markup not interpreted, with control characters shown as `<1b>`."""
    shown = _CONTROL.sub(lambda match: f"<{ord(match[0]):02x}>", text.replace("\r\n", "\n"))
    return Text(shown, style=style)


def say(sentence: str) -> None:
    """Print a sentence to standard error, as from the command."""
    print_prose(f"gymq: {sentence}", sys.stderr)


def print_prose(text: str, file: TextIO) -> None:
    """Print text for people. A terminal gets lines that end between words; a word that is too long stays whole."""
    shown = printable(text).plain
    if file.isatty():
        width = Console(file=file).width
        shown = "\n".join(_broken_between_words(line, width) for line in shown.splitlines())
    print(shown, file=file)


def _broken_between_words(line: str, width: int) -> str:
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    return textwrap.fill(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def shown_seconds(seconds: float) -> str:
    """Return text such as `0.24 s`, `12 s`, `3 min`, `5 h 20 min` or `3 d 4 h`."""
    if seconds < 10:
        return f"{seconds:.2f} s"
    if seconds < 2 * _MINUTE:
        return f"{seconds:.0f} s"
    if seconds < 2 * _HOUR:
        return f"{seconds // _MINUTE:.0f} min"
    if seconds < 2 * _DAY:
        return f"{seconds // _HOUR:.0f} h {seconds % _HOUR // _MINUTE:.0f} min"
    return f"{seconds // _DAY:.0f} d {seconds % _DAY // _HOUR:.0f} h"


def shown_count(count: int) -> str:
    """Return text such as `1,234`; `-` for none."""
    return f"{count:,}" if count else "-"


def counted(count: int, noun: str) -> str:
    """Return text such as `1 row`, `1,234 rows` or `2 processes`."""
    plural = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{count:,} {noun if count == 1 else plural}"


def shown_classes(counts: Mapping[str, int]) -> str:
    """Return counts by class, such as `12 judge_failed, 1 timeout`, the largest first."""
    return ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items(), key=lambda item: -item[1]))


def shown_decimal(value: float | None) -> str:
    """Return a number with three decimals, so that a column lines up; a tiny one with its exponent; `-` for none."""
    return shown_number(value, ".1e" if value and abs(value) < 0.001 else ",.3f")


def shown_number(value: float | None, form: str = ".3f") -> str:
    """Return a number in a format of `format`; `-` for an unknown number."""
    return "-" if value is None else f"{value:{form}}"


def listing_console() -> Console:
    """Return the console for listings on standard output: as wide as the terminal, or unlimited through a pipe."""
    console = Console()
    if not console.is_terminal:
        console.width = 10_000
    return console


def listing(
    title: str | Text,
    *columns: str,
    numbers: Collection[str] = (),
    names: Collection[str] = (),
    spare: Sequence[str] = (),
    caption: str | None = None,
) -> Listing:
    """Return an empty table with hardly any frame.

    Args:
        title: title above the table; may be empty.
        columns: the headings, in order. Texts are wrapped between words where there is no room.
        numbers: headings of the columns with numbers.
        names: headings of the columns with names, which are never wrapped; the first column is always one of them.
        spare: headings of the columns that are left out where there is no room, the first of them first.
        caption: text below the table.
    """
    return Listing(title, columns, numbers, {*names, *columns[:1]}, caption, spare)


class Listing:
    """A table that becomes a list of its rows on a terminal that is too narrow for its names and numbers."""

    def __init__(
        self,
        title: str | Text,
        headings: Collection[str],
        numbers: Collection[str],
        names: Collection[str],
        caption: str | None,
        spare: Sequence[str],
    ) -> None:
        self.title = title if isinstance(title, Text) else Text(title, "italic")
        self.caption = caption
        self._headings = list(headings)
        self._numbers = numbers
        self._names = names
        self._spare = spare
        self._rows: list[tuple[Text, ...]] = []

    def add_row(self, *cells: str | Text) -> None:
        """Add a row. Texts are shown as they are: what looks like markup is none."""
        self._rows.append(tuple(cell if isinstance(cell, Text) else Text(cell) for cell in cells))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        body: Iterable[RenderableType] = self._as_list()
        captions = [self.caption] if self.caption else []
        for count in range(len(self._spare) + 1):
            left_out = self._spare[:count]
            widths = self._widths(options.max_width, left_out)
            if widths is not None:
                body = [self._as_table(widths)]
                captions += [f"not shown for lack of room: {', '.join(left_out)}"] if left_out else []
                break
        head = [self.title] if self.title else []
        foot = [Text(caption, "dim") for caption in captions]
        for part in (*head, *body, *foot):
            for line in console.render_lines(part, options, pad=False):
                yield from _without_end(line)
                yield Segment.line()

    def _widths(self, room: int, left_out: Collection[str]) -> dict[int, int] | None:
        """Return the widths of the columns by their places; None if names and numbers do not fit side by side."""
        least, most = [], []
        places = [at for at, heading in enumerate(self._headings) if heading not in left_out]
        for at in places:
            heading = self._headings[at]
            cells = [Text(heading), *(row[at] for row in self._rows)]
            measured = [Measurement(*_words_and_line(cell)) for cell in cells]
            most.append(max(one.maximum for one in measured))
            whole = heading in self._names or heading in self._numbers
            least.append(most[-1] if whole else max(one.minimum for one in measured))
        left = room - sum(least) - 2 * (len(least) - 1)  # two columns between each two
        if left < 0:
            return None
        widths = {}
        for at, low, high in zip(places, least, most, strict=True):
            more = min(high - low, left)
            widths[at] = low + more
            left -= more
        return widths

    def _as_table(self, widths: Mapping[int, int]) -> Table:
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
        for at, width in widths.items():
            heading = self._headings[at]
            is_number = heading in self._numbers
            table.add_column(heading, justify="right" if is_number else "left", width=width, overflow="fold")
        for row in self._rows:
            table.add_row(*(row[at] for at in widths))
        return table

    def _as_list(self) -> Iterator[RenderableType]:
        for name, *cells in self._rows:
            yield Text.assemble(name, no_wrap=True, overflow="ignore")
            facts = Table.grid(padding=(0, 2, 0, 0))
            facts.add_column(width=0)
            facts.add_column(no_wrap=True)
            facts.add_column(overflow="fold")
            for heading, cell in zip(self._headings[1:], cells, strict=True):
                if cell.plain:
                    facts.add_row("", heading, Text("   ").join(cell.split("\n")))
            yield facts


def shown_environments(agents: Iterable[str]) -> dict[str, str]:
    """Return the names of agent instances in tables: `mcqa` for `mcqa_simple_agent`, unless it is ambiguous."""
    agents = set(agents)
    short = {name: name.removesuffix(_AGENT_SUFFIX) or name for name in sorted(agents)}
    return {name: name if shown in agents else shown for name, shown in short.items()}


def _words_and_line(cell: Text) -> tuple[int, int]:
    """Return the lengths of the longest word and of the longest line."""
    lines = cell.split("\n")
    return max((word.cell_len for line in lines for word in line.split(" ")), default=0), max(
        (line.cell_len for line in lines), default=0
    )


def _without_end(line: list[Segment]) -> list[Segment]:
    """Return the line without trailing blanks."""
    blank = len(list(takewhile(lambda segment: not segment.text.strip(), reversed(line))))
    kept = line[: len(line) - blank]
    return [*kept[:-1], Segment(kept[-1].text.rstrip(), kept[-1].style)] if kept else []
