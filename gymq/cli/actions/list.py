"""The work of `gymq list`."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from gymq.defaults import Kind
from gymq.loading.worker_facts import WorkerFacts
from gymq.render import listing, printable


def print_facts(kind: Kind, facts: Sequence[WorkerFacts], console: Console) -> None:
    if kind != "resources":
        table = listing("", kind, "what it does")
        for one in facts:
            table.add_row(one.name, printable(one.problem or one.summary))
    else:
        table = listing("", kind, *RESOURCES_COLUMNS)
        for one in facts:
            table.add_row(one.name, *map(printable, resources_cells(one)))
    console.print(table)


RESOURCES_COLUMNS = ("rewards", "range", "deterministic", "tools", "state", "needs")


def resources_cells(facts: WorkerFacts) -> tuple[str, ...]:
    """Return the facts about a resources worker as the cells of a table row, without its name."""
    if facts.problem:
        return (facts.problem, *("" for _ in RESOURCES_COLUMNS[1:]))
    return (
        facts.summary,
        "-" if facts.reward_range is None else "{:g} to {:g}".format(*facts.reward_range),
        "yes" if facts.deterministic else "no",
        "yes" if facts.more_tools else str(len(facts.tools) or "-"),
        "replayable" if facts.replayable else "yes" if facts.state else "-",
        ", ".join(facts.needs) or "-",
    )
