"""The reward over the steps: live in the terminal, and as a picture."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

EIGHTHS = " ▁▂▃▄▅▆▇█"
SMOOTHED_OVER = 5  # steps


class LiveCurve:
    """Draws the curve anew after each step; where there is no terminal it prints a line."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._live.stop()

    def show(self, rewards: Sequence[float], line: str) -> None:
        if self._console.is_terminal:
            self._live.update(Group(Text(chart(rewards, self._console.width - 8)), Text(line)), refresh=True)
        else:
            self._console.print(line, soft_wrap=True)


def chart(values: Sequence[float], width: int, height: int = 10) -> str:
    """Values between 0 and 1 as columns; the last `width` of them."""
    shown = values[-width:]
    lines = []
    for row in range(height - 1, -1, -1):
        cells = (EIGHTHS[max(0, min(8, round((value * height - row) * 8)))] for value in shown)
        lines.append(f"{(row + 1) / height:4.1f} │{''.join(cells)}")
    return "\n".join([*lines, f"     └{'─' * len(shown)}"])


def smoothed(values: Sequence[float]) -> list[float]:
    """The mean of each value and those just before it."""
    return [statistics.fmean(values[max(0, at - SMOOTHED_OVER + 1) : at + 1]) for at in range(len(values))]


def save_png(path: Path, rewards: Sequence[float], before: float, after: float) -> None:
    """The curve, with the evaluation before and after the training at its ends."""
    from matplotlib.figure import Figure  # it takes a second to import

    figure = Figure(figsize=(8, 4.5), layout="tight")
    axes = figure.subplots()
    steps = range(1, len(rewards) + 1)
    axes.plot(steps, rewards, color="tab:blue", alpha=0.3, label="reward of a step")
    axes.plot(steps, smoothed(rewards), color="tab:blue", label=f"mean of {SMOOTHED_OVER} steps")
    axes.plot([0, len(rewards)], [before, after], "o", color="tab:red", label="held-out tasks")
    axes.set(xlabel="update of the policy", ylabel="mean reward", ylim=(0, 1.05))
    axes.legend(loc="lower right")
    figure.savefig(path, dpi=120)


def save_training(path: Path, rewards: Sequence[float], events: Mapping[str, int]) -> None:
    """The curve of a training in which something happened at some steps."""
    from matplotlib import rc_context  # it takes a second to import
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4), layout="tight")
    axes = figure.subplots()
    steps = range(1, len(rewards) + 1)
    axes.plot(steps, rewards, color="tab:blue", alpha=0.3, label="reward of a step")
    axes.plot(steps, smoothed(rewards), color="tab:blue", label=f"mean of {SMOOTHED_OVER} steps")
    for number, (name, step) in enumerate(events.items()):
        axes.axvline(step, color=f"C{number + 1}", linestyle="--", label=name)
    axes.set(xlabel="update of the policy", ylabel="mean reward", ylim=(0, 1.05))
    axes.legend(loc="lower right")
    with rc_context({"svg.hashsalt": path.stem}):  # the same curve is the same file
        figure.savefig(path, metadata={"Date": None})
