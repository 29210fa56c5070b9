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
    """Redraws the curve after each step; without a terminal it prints a line."""

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
    axes.plot([0, len(rewards)], [before, after], "o", color="tab:red", label="evaluation")
    axes.set(xlabel="update of the policy", ylabel="mean reward", ylim=(0, 1.05))
    axes.legend(loc="lower right")
    figure.savefig(path, dpi=120)


WIDTH, HEIGHT = 720, 340  # of a drawing
LEFT, RIGHT, TOP, BOTTOM = 58, 698, 16, 286
STYLE = """
  .page { fill: #ffffff } text { fill: #333333 } .grid { stroke: #dddddd }
  .event { stroke: #d9480f; stroke-dasharray: 5 4 }
  .step { fill: none; stroke: #9db4e8; stroke-width: 1.5 } .mean { fill: none; stroke: #3b5bdb; stroke-width: 2.5 }
  @media (prefers-color-scheme: dark) {
    .page { fill: #1c1e26 } text { fill: #dddddd } .grid { stroke: #3a3d48 } .event { stroke: #ff922b }
    .step { stroke: #4a5f9e } .mean { stroke: #8fa8ff }
  }
"""


def save_training(path: Path, rewards: Sequence[float], events: Mapping[str, int]) -> None:
    """A drawing of a training in which something happened at some steps."""

    def x(step: float) -> float:
        return LEFT + (RIGHT - LEFT) * step / len(rewards)

    def y(value: float) -> float:
        return BOTTOM - (BOTTOM - TOP) * value

    def line(kind: str, values: Sequence[float]) -> str:
        points = " ".join(f"{x(step):.1f},{y(value):.1f}" for step, value in enumerate(values, 1))
        return f'<polyline class="{kind}" points="{points}"/>'

    def text(at_x: float, at_y: float, anchor: str, words: str) -> str:
        return f'<text x="{at_x:.1f}" y="{at_y:.1f}" text-anchor="{anchor}">{words}</text>'

    title = f"Mean reward of each of {len(rewards)} steps, with the mean of {SMOOTHED_OVER} steps; " + ", ".join(
        f"{name} at step {step}" for name, step in events.items()
    )
    parts = [f'<title id="title">{title}</title>', f"<style>{STYLE}</style>"]
    parts.append(f'<rect class="page" width="{WIDTH}" height="{HEIGHT}" rx="6"/>')
    for fifth in range(6):
        at = y(fifth / 5)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(text(LEFT - 8, at + 4, "end", f"{fifth / 5:.1f}"))
    parts += [text(x(step), BOTTOM + 18, "middle", str(step)) for step in range(0, len(rewards) + 1, 10)]
    parts.append(text((LEFT + RIGHT) / 2, BOTTOM + 40, "middle", "update of the policy"))
    for name, step in events.items():
        parts.append(f'<line class="event" x1="{x(step):.1f}" x2="{x(step):.1f}" y1="{TOP}" y2="{BOTTOM}"/>')
        parts.append(text(x(step) + 6, BOTTOM - 12 - 18 * list(events).index(name), "start", name))
    parts += [line("step", rewards), line("mean", smoothed(rewards))]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="title"'
    drawing = "\n".join([f'{head} font-family="system-ui, sans-serif" font-size="13">', *parts, "</svg>"])
    path.write_text(drawing + "\n", encoding="utf-8")
