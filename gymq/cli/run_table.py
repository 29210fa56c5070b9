"""The runs of a cluster as a table."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from gymq.cli.listing import listing
from gymq.cli.printable import printable
from gymq.cli.units import shown_time
from gymq.runs import RunState


def run_table(runs: Sequence[RunState], *, num_runs: int) -> Table:
    """The runs, and in the caption how many more there are."""
    caption = f"the newest {len(runs)} of {num_runs} runs" if num_runs > len(runs) else None
    numbers = ("done", "failures", "reward")
    table = listing("runs", "run", "begun", *numbers, "policy", numbers=numbers, caption=caption)
    for run in runs:
        done = f"{run.num_stored:,}"
        table.add_row(
            run.run,
            shown_time(run.created_at),
            done if run.num_rollouts is None else f"{done} of {run.num_rollouts:,}",
            f"{run.num_failures:,}" if run.num_failures else "-",
            "-" if run.mean_reward is None else f"{run.mean_reward:.3f}",
            printable(", ".join(run.models) or "-"),
        )
    return table
