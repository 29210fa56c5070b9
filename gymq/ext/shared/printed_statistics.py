"""The statistics of a run, printed; those of its files, computed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from rich.console import RenderableType
from rich.text import Text

from gymq.cli.shared.run_summary import print_older_rewards
from gymq.cli.shared.table import profile_table
from gymq.data.run_files import ReportFiles, RunFiles
from gymq.defaults import PASS_THRESHOLD
from gymq.render import (
    Listing,
    listing,
    listing_console,
    printable,
    shown_classes,
    shown_decimal,
    shown_environments,
    shown_number,
)
from gymq.runs.older_rewards import older_rewards
from gymq.stats.files import read_statistics
from gymq.stats.running import AgentSnapshot, ProfileSnapshot


def profile_files(
    rollouts: Path,
    rows: Path | None,
    report: ReportFiles | None,
    ks: list[int] | None = None,
    threshold: float = PASS_THRESHOLD,
    as_json: bool = False,
    *,
    allow_partial: bool = True,
) -> int:
    """Print the statistics of a run from its files, and optionally write its report; return the exit status.

    Args:
        rollouts: the output file of the run.
        rows: its materialised rows, if they are not beside it.
        report: the files to write.
        ks: values of k of pass@k; None: the usual ones.
        threshold: smallest reward with which a rollout passes.
        allow_partial: whether rows may lack a result in the report.
    """
    files = RunFiles(rollouts)
    found = read_statistics(files, rows=rows, pass_threshold=threshold, report=report, allow_partial=allow_partial)
    name = files.read_run() or rollouts.name
    print_statistics(found.profile.snapshot(ks), name, (), ks, as_json=as_json, paths=report or ())
    print_older_rewards(older_rewards(files))
    return 0


def print_statistics(
    snapshot: ProfileSnapshot,
    run: str,
    models: Sequence[str],
    ks: list[int] | None,
    *,
    as_json: bool,
    paths: Sequence[Path] = (),
) -> None:
    """Print the statistics of a run, as tables or as one JSON object.

    Args:
        ks: values of k of pass@k; None: the usual ones.
        paths: files that have the statistics too.
    """
    if as_json:
        statistics: dict[str, Any] = {"run": run, **msgspec.to_builtins(snapshot, str_keys=True)}
        if paths:
            statistics["files"] = [str(path) for path in paths]
        print(msgspec.json.encode(statistics).decode())
        return
    console = listing_console()
    for table in _tables(snapshot, run, models, ks):
        console.print(table)
        console.print()
    if paths:
        print(f"statistics in {', '.join(map(str, paths))}")


def _tables(snapshot: ProfileSnapshot, run: str, models: Sequence[str], ks: list[int] | None) -> list[RenderableType]:
    tables: list[RenderableType] = [profile_table(snapshot, run=run, models=models, ks=ks)]
    names = shown_environments(snapshot.agents)
    for name, agent in snapshot.agents.items():
        if agent.rollouts:
            tables += [_rate_table(names[name], agent, ks), _field_table(names[name], agent)]
    return tables + failure_lines(snapshot)


def failure_lines(snapshot: ProfileSnapshot) -> list[RenderableType]:
    """Return a line for each agent with failed rollouts, by the class of their failures."""
    lines: list[RenderableType] = []
    names = shown_environments(snapshot.agents)
    for name, agent in snapshot.agents.items():
        if agent.failures:
            lines.append(Text(f"failures of {names[name]}: {shown_classes(agent.failures)}", "yellow"))
    return lines


def _field_table(name: str, agent: AgentSnapshot) -> Listing:
    """Return a table with mean, deviation and range over an agent's rollouts of the reward and each other number."""
    numbers = ("rollouts", "mean", "std", "min", "median", "max")
    caption = f"{agent.fields_left_out} values of further fields are left out" if agent.fields_left_out else None
    table = listing(f"numbers of {name} over all rollouts", "field", *numbers, numbers=numbers, caption=caption)
    for field, stats in agent.fields.items():
        cells = (stats.mean, stats.std, stats.min, stats.median, stats.max)
        table.add_row(printable(field), f"{stats.count:,}", *map(shown_decimal, cells))
    return table


def _rate_table(name: str, agent: AgentSnapshot, ks: Sequence[int] | None = None) -> Listing:
    """Return a table with pass@k, and the vote of the majority where the rollouts have answers."""
    numbers = ("pass@k", "interval")
    lines = []
    if agent.majority is not None:
        lines.append(f"majority {agent.majority.value:.1f} %: tasks whose most frequent answer passes")
    if agent.no_answer is not None:
        lines.append(f"{agent.no_answer:.1f} % of the rollouts have no answer")
    table = listing(f"pass@k of {name} (%)", "k", *numbers, numbers=numbers, caption="\n".join(lines) or None)
    estimates = agent.pass_at_k_of_all() if ks is None else agent.pass_at_k
    for k in sorted(estimates) if ks is None else ks:
        estimate = estimates.get(k)
        interval = None if estimate is None else estimate.interval
        table.add_row(
            f"{k}",
            shown_number(None if estimate is None else estimate.value, ".1f"),
            "-" if interval is None else f"{interval.low:.1f} to {interval.high:.1f}",
        )
    return table
