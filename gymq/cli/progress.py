"""The live line of a collection on the terminal: how far, how fast, how well."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from gymq.collect import Progress as CollectProgress

REFRESH_S = 0.2
PLAIN_EVERY_S = 5.0


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.finished_speed or task.speed or 0.0:,.0f} rollouts/s")


@contextlib.contextmanager
def show_progress(progress: CollectProgress, *, quiet: bool) -> Iterator[None]:
    """Shows `progress` on standard error while the block runs; a line now and then where that is no terminal."""
    console = Console(stderr=True)
    if quiet:
        yield
        return
    show = _live if console.is_terminal else _plain
    task = asyncio.get_running_loop().create_task(show(progress, console))
    try:
        yield
    finally:
        task.cancel()


async def _live(progress: CollectProgress, console: Console) -> None:
    columns = (
        SpinnerColumn(),
        TextColumn("{task.completed:,}/{task.total:,}"),
        BarColumn(),
        _Rate(),
        TextColumn("{task.fields[score]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("rollouts", total=None, start=False, score="")
        while True:
            if progress.total:
                if bar.tasks[0].total is None:
                    bar.start_task(task)
                bar.update(task, total=progress.total, completed=progress.finished, score=_score(progress))
            try:
                await asyncio.sleep(REFRESH_S)
            except asyncio.CancelledError:
                bar.update(task, completed=progress.finished, score=_score(progress))
                raise


async def _plain(progress: CollectProgress, console: Console) -> None:
    started, before = time.monotonic(), progress.finished
    while True:
        await asyncio.sleep(PLAIN_EVERY_S)
        rate = (progress.finished - before) / (time.monotonic() - started)
        console.print(f"{progress.finished:,}/{progress.total:,}  {rate:,.0f} rollouts/s  {_score(progress)}")


def _score(progress: CollectProgress) -> str:
    count = sum(count for count, _ in progress.rewards.values())
    total = sum(total for _, total in progress.rewards.values())
    parts = [f"pass@1 {100 * total / count:.1f} %"] if count else []
    if progress.failed:
        parts.append(f"{progress.failed:,} failed")
    if progress.stalled_s:
        parts.append(f"nothing finished for {progress.stalled_s:.0f} s")
    return "  ".join(parts)
