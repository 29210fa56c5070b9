"""The live lines of a collection on the terminal: how far, how fast, how well, and what failed."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from gymq.cli.units import shown_seconds
from gymq.collect import Progress as CollectProgress

REFRESH_S = 0.2
PLAIN_EVERY_S = 5.0
SPEED_OVER_S = 30.0  # the rate is that of the last half minute


@contextlib.contextmanager
def show_progress(progress: CollectProgress, *, quiet: bool) -> Iterator[None]:
    """Show `progress` on standard error while the block runs.

    On a terminal it is a bar that is drawn in place; elsewhere a line is printed every few seconds.

    Args:
        progress: read at every refresh, never changed.
        quiet: show nothing.
    """
    if quiet:
        yield
        return
    console = Console(stderr=True)
    view = _View(progress)
    with contextlib.ExitStack() as stack:
        if console.is_terminal:
            # Not refreshed by a thread of rich: the figures are those of this event loop.
            draw = _refresh(stack.enter_context(Live(view, console=console, auto_refresh=False)))
        else:
            draw = _print_lines(view, console)
        task = asyncio.get_running_loop().create_task(draw)
        stack.callback(task.cancel)
        yield


class _Speed:
    """Rollouts a second over the last half minute."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def update(self, finished: int, now: float) -> None:
        self._seen.append((now, finished))
        while len(self._seen) > 2 and now - self._seen[1][0] > SPEED_OVER_S:
            self._seen.popleft()

    def per_second(self) -> float:
        (began, first), (now, last) = self._seen[0], self._seen[-1]
        return (last - first) / (now - began) if now > began else 0.0


class _View:
    """The figures of a collection, as rich draws them at every refresh."""

    def __init__(self, progress: CollectProgress) -> None:
        self._progress = progress
        self._speed = _Speed()
        self._spinner = Spinner("dots")

    def __rich__(self) -> RenderableType:
        progress = self._progress
        if not progress.total:
            return _row(self._spinner, Text("starting"))
        counts, facts = self.lines()
        bar = ProgressBar(total=progress.total, completed=progress.finished, width=20)
        return Group(_row(self._spinner, bar, counts), facts)

    def lines(self) -> tuple[Text, Text]:
        """Return the counts, and what is known of the results, each on one line."""
        progress = self._progress
        self._speed.update(progress.finished, time.monotonic())
        speed = self._speed.per_second()
        counts = [f"{progress.finished:,}/{progress.total:,}", f"{speed:,.1f} rollouts/s"]
        left = progress.total - progress.finished
        if left and speed:
            counts.append(f"{shown_seconds(left / speed)} left")
        if progress.in_flight:
            counts.append(f"{progress.in_flight:,} in flight")
        facts = []
        if (reward := progress.mean_reward) is not None:
            facts.append(f"mean reward {reward:.3f}")
        if progress.failures:
            facts.append(f"{progress.failed:,} failed ({_by_class(progress.failures)})")
        if progress.stalled_s:
            facts.append(f"nothing finished for {progress.stalled_s:.0f} s")
        return _line(counts), _line(facts)


async def _refresh(live: Live) -> None:
    while True:
        live.refresh()
        await asyncio.sleep(REFRESH_S)


async def _print_lines(view: _View, console: Console) -> None:
    view.lines()  # from here on the speed is measured
    while True:
        await asyncio.sleep(PLAIN_EVERY_S)
        console.print(_line([part.plain for part in view.lines() if part]), soft_wrap=True)


def _row(*cells: RenderableType) -> Table:
    row = Table.grid(padding=(0, 1))
    row.add_row(*cells)
    return row


def _line(parts: list[str]) -> Text:
    return Text(", ".join(parts), no_wrap=True, overflow="ellipsis")


def _by_class(failures: dict[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in sorted(failures.items(), key=lambda item: -item[1]))
