"""The live lines of a collection: progress, speed, reward, failures, and pending work."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from gymq.render import counted, printable, shown_seconds
from gymq.runs.collection.progress import Progress as CollectProgress
from gymq.stats.intervals import Estimate

REFRESH_S = 0.2
BAR = 12  # characters


@contextlib.contextmanager
def show_progress(progress: CollectProgress, *, quiet: bool) -> Iterator[None]:
    """Show `progress` on standard error while the block runs.

    On a terminal it is drawn in place, in a notebook it is a line that is updated in place; elsewhere a line is printed
    every few seconds.

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
        if (display := _notebook_display()) is not None:
            draw = _update_line(view, display)
        elif _draws_in_place(console):
            # Not refreshed by a thread of rich: the figures are those of this event loop.
            live = stack.enter_context(Live(view, console=console, auto_refresh=False))
            stack.callback(_erase_unless_begun, live, progress)
            draw = _refresh(live)
        else:
            draw = _print_lines(view, console)
        task = asyncio.get_running_loop().create_task(draw)
        stack.callback(task.cancel)
        yield


@contextlib.contextmanager
def show_steps(*, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Show on a terminal what happens before there is progress, while the block runs; nothing stays of it.

    Yields:
        Shows the next step.
    """
    console = Console(stderr=True)
    if quiet or not _draws_in_place(console):
        yield lambda _: None
        return
    with console.status("") as status:
        yield lambda step: status.update(printable(step))


def shown_reward(reward: Estimate) -> str:
    """Return text such as `0.512 (0.491 to 0.533)`, with the 95 % interval where there is one."""
    interval = reward.interval
    return f"{reward.value:.3f}" + ("" if interval is None else f" ({interval.low:.3f} to {interval.high:.3f})")


class Speed:
    """Growth of counts per second, over the last half minute."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, tuple[int, ...]]] = deque()

    def note(self, at: float, *counts: int) -> None:
        """Remember a look, at a time in seconds on any clock."""
        self._seen.append((at, counts))
        while len(self._seen) > 2 and at - self._seen[0][0] > 30.0:
            self._seen.popleft()

    def per_second(self) -> list[float] | None:
        """Return the growth of each count; None after a single look."""
        (began, first), (now, last) = self._seen[0], self._seen[-1]
        if now <= began:
            return None
        return [max(0.0, after - before) / (now - began) for before, after in zip(first, last, strict=True)]


class _View:
    """The figures of a collection, as rich draws them at every refresh."""

    def __init__(self, progress: CollectProgress) -> None:
        self._progress = progress
        self._speed = Speed()
        self._spinner = Spinner("dots")

    def __rich__(self) -> RenderableType:
        progress = self._progress
        if not progress.total:
            return _row(self._spinner, Text("starting"))
        counts, facts, waits, viewer = (", ".join(parts) for parts in self.parts())
        bar = ProgressBar(total=progress.total, completed=progress.finished, width=BAR)
        moving = [self._spinner] if progress.finished < progress.total else []
        lines: list[RenderableType] = [_row(*moving, bar, Text(counts))]
        lines += [printable(line, style) for line, style in ((facts, ""), (waits, "yellow"), (viewer, "dim")) if line]
        return Group(*lines)

    def line(self) -> Text:
        """Return everything on one line."""
        return printable(", ".join(part for parts in self.parts()[:3] for part in parts))

    def parts(self) -> tuple[list[str], list[str], list[str], list[str]]:
        """Return the counts, the known results, the pending work, and the address of the viewer."""
        progress = self._progress
        self._speed.note(time.monotonic(), progress.finished - progress.before, progress.output_tokens)
        rollouts, tokens = self._speed.per_second() or (0.0, 0.0)
        counts = [f"{progress.finished:,}/{progress.total:,}"]
        left = progress.total - progress.finished
        if left or rollouts:  # a run may end before its speed is measured
            counts.append(f"{rollouts:,.1f} rollouts/s")
        if left and rollouts:
            counts.append(f"{shown_seconds(left / rollouts)} left")
        if progress.in_flight:
            counts.append(f"{progress.in_flight:,} in flight")
        if progress.paused:
            counts.append(f"paused: gymq resume --run {progress.run}")
        facts = []
        if (reward := progress.rewards.estimate()) is not None:
            facts.append(f"mean reward {shown_reward(reward)}")
        if tokens:
            facts.append(f"{tokens:,.0f} tokens/s")
        if progress.failures:
            newest = f", the last: {progress.newest_failure}" if progress.newest_failure else ""
            facts.append(f"{progress.failed:,} failed ({_by_class(progress.failures)}{newest})")
        if progress.retried:
            facts.append(f"{counted(progress.retried, 'rollout')} retried")
        if progress.model_retries:
            facts.append(f"{counted(progress.model_retries, 'model call')} retried")
        viewer = [] if progress.viewer_url is None else [f"viewer: {progress.viewer_url}"]
        return counts, facts, self._waits(), viewer

    def _waits(self) -> list[str]:
        progress = self._progress
        waits = [f"{reason}, {count:,} waiting" for reason, count in progress.waits.items()]
        if progress.slowest is not None and progress.slowest.seconds > 20.0:
            waits.append(f"slowest {progress.slowest.kind} {shown_seconds(progress.slowest.seconds)}")
        if progress.stalled_s:
            waits.append(f"nothing finished for {progress.stalled_s:.0f} s")
        return waits


def _erase_unless_begun(live: Live, progress: CollectProgress) -> None:
    live.transient = not progress.total


async def _refresh(live: Live) -> None:
    while True:
        live.refresh()
        await asyncio.sleep(REFRESH_S)


async def _print_lines(view: _View, console: Console) -> None:
    view.parts()  # from here on the speed is measured
    while True:
        await asyncio.sleep(5.0)
        console.print(view.line(), soft_wrap=True)


async def _update_line(view: _View, display: Any) -> None:
    handle = display({"text/plain": "starting"}, raw=True, display_id=True)
    while True:
        handle.update({"text/plain": view.line().plain}, raw=True)
        await asyncio.sleep(REFRESH_S)


def _notebook_display() -> Any:
    """Return IPython's `display` if this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if getattr(shell, "kernel", None) is None:
        return None
    return importlib.import_module("IPython.display").display


def _draws_in_place(console: Console) -> bool:
    """Return whether standard error is a terminal that can redraw lines; that of a notebook's `!command` cannot."""
    below_kernel = "JPY_PARENT_PID" in os.environ or (
        os.environ.get("PAGER") == "cat" and os.environ.get("TERM") == "xterm-color"
    )
    return sys.stderr.isatty() and console.is_terminal and not console.is_dumb_terminal and not below_kernel


def _row(*cells: RenderableType) -> Table:
    row = Table.grid(padding=(0, 1))
    row.add_row(*cells)
    return row


def _by_class(failures: dict[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in sorted(failures.items(), key=lambda item: -item[1]))
