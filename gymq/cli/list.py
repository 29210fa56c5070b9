"""gymq list"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
from rich.console import Console

from gymq.cli.listing import listing
from gymq.cli.printable import printable
from gymq.registry import Kind
from gymq.worker_facts import WorkerFacts, facts_of, names

KINDS: tuple[Kind, ...] = ("agents", "models", "resources")


def list(
    kind: Literal["agents", "models", "resources"] | None = None,
    /,
    *,
    json: bool = False,
) -> int:
    """The workers that can be named in a configuration, and what each says of itself.

    A worker whose libraries are not installed is listed with the command that installs them.

    Args:
        kind: only the workers of this kind.
        json: one JSON object a line instead of tables.
    """
    console = Console()
    for one in (kind,) if kind else KINDS:
        facts = [facts_of(one, name) for name in names(one)]
        if json:
            for each in facts:
                print(msgspec.json.encode(each).decode())
        else:
            _print(one, facts, console)
    return 0


def _print(kind: Kind, facts: Sequence[WorkerFacts], console: Console) -> None:
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
    """The facts about a resources worker as the cells of a table row, its name left out."""
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
