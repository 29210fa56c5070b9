"""Examples: rows of data sets that trainers submit, the rows of their rollouts, and what messages call them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pydantic

from gymq.authoring import first_problem
from gymq.data.datasets import Dataset
from gymq.data.jsonl import JsonlError, JsonlText, parse_object
from gymq.data.materialise import Materialisation, MaterialiseOptions
from gymq.data.row_problems import RowProblems
from gymq.data.rows import PARAMS, SOURCE, TASK_INDEX, MaterialisedRow, RowError
from gymq.data.short_rows import whole_row
from gymq.errors import GymqError, UsageError

Row = dict[str, Any]


def read_rows(path: str | Path) -> list[Row]:
    """Return the rows of a data set, each with its file and line in `_ng_source`, by which messages call it.

    Args:
        path: as `gymq collect --rows` takes it: a file of any format, a folder or a name of the Hub.

    Raises:
        JsonlError: the data set cannot be read, or the Hub cannot be reached; the message names file and row.
    """
    data = Dataset(Path(path))
    rows = []
    for number, line in enumerate(data, 1):
        try:
            row = {name: msgspec.json.decode(value) for name, value in parse_object(line).items()}
        except JsonlError as error:
            raise JsonlError(f"{data.place(number)}: {error}") from None
        rows.append({**row, SOURCE: data.place(number)})
    return rows


def place_of(example: Any) -> str:
    """Return what messages call a row: its file and line if it has them, and the beginning of its prompt."""
    if not isinstance(example, dict):
        return ""
    source = example.get(SOURCE)
    return ", ".join(part for part in (source if isinstance(source, str) else "", _prompt_of(example)) if part)


def _prompt_of(example: Row) -> str:
    """Return the beginning of the last thing that a row asks the model; empty if it asks nothing."""
    try:
        asked = msgspec.json.decode(whole_row(msgspec.json.encode(example)))[PARAMS].get("input")
    except (GymqError, TypeError, ValueError, RecursionError):
        return ""
    last = asked[-1].get("content") if isinstance(asked, list) and asked and isinstance(asked[-1], dict) else asked
    text = " ".join((last if isinstance(last, str) else msgspec.json.encode(last).decode()).split())
    return repr(text if len(text) <= 60 else f"{text[:60]}...")


def called(name: str, example: Any) -> str:
    """Return a name with the place of its row in parentheses."""
    place = place_of(example)
    return f"{name} ({place})" if place else name


def rows_of_groups(examples: Sequence[Row], size: int, agent: str | None) -> list[list[MaterialisedRow]]:
    """Return the rows of each example's rollouts.

    Raises:
        RowError: examples cannot be used; the message says which and why.
        UsageError: the options do not fit.
    """
    problems = RowProblems()

    def refuse(number: int, problem: str) -> None:
        problems.add(called(f"examples:{number}", examples[number - 1]), problem)

    for number, example in enumerate(examples, 1):
        if not isinstance(example, dict) or TASK_INDEX not in example:
            refuse(number, f"expected an object with a `{TASK_INDEX}`, which identifies the group")
    if problems.count:
        raise RowError(problems.report(len(examples)))
    try:
        options = MaterialiseOptions(agent_name=agent, num_repeats=size)
        text = b"\n".join(msgspec.json.encode(example) for example in examples)
    except pydantic.ValidationError as error:
        raise UsageError(first_problem(error)) from None
    except (TypeError, ValueError, RecursionError) as error:
        raise RowError(f"an example has no JSON form: {error}") from None
    groups: dict[int, list[MaterialisedRow]] = {}
    with Materialisation(options) as made:
        for row in made.rows(JsonlText("examples", text), refuse):
            group = groups.setdefault(row.task_index, [])
            if group and group[0].line_number != row.line_number:
                refuse(row.line_number, f"`{TASK_INDEX}` {row.task_index} occurs twice")
                continue
            group.append(row)
    if problems.count:
        raise RowError(problems.report(len(examples)))
    return list(groups.values())
