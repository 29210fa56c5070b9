"""How an environment behaves beside its verdicts: to rows that do not fit, to other sessions, to odd arguments."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import msgspec

from gymq.messages import ToolResult
from gymq.outcomes import RolloutError
from gymq.testing.gold import GoldRow
from gymq.testing.report import Check, checked
from gymq.testing.scripts import reply
from gymq.testing.trial import REFUSALS, Trial

_ODD_VALUES: tuple[Any, ...] = (None, [], {}, "", "x", -1, 2**53, [[[{"a": None}]]], {"a": {"b": [None]}})
_ODD_ARGUMENTS: tuple[Any, ...] = (
    None,
    {},
    [],
    "text",
    -1,
    {"no_such_argument": 1},
    [[[[None]]]],
)


async def malformed_rows(trial: Trial) -> Check:
    """Check that rows that do not fit are refused as invalid tasks, or verified."""
    row = trial.gold[0]
    problems = []
    count = 0
    for label, odd in _odd_rows(trial, row.row):
        count += 1
        found = await trial.outcome(odd, reply(""), f"{row.where}, {label}")
        if found.reward is None and found.failure not in REFUSALS:
            problems.append(f"{row.where}, {label}: {found}; a row that does not fit ends as invalid_task")
    return checked("malformed rows", problems, f"{count} rows are refused or verified")


def _odd_rows(trial: Trial, row: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    author = trial.author
    for field in {**author.row_type.model_fields, **author.seed_row_type.model_fields}:
        yield f"without `{field}`", {name: value for name, value in row.items() if name != field}
        for value in _ODD_VALUES:
            yield f"`{field}` is {value!r:.40}", {**row, field: value}


async def idle_session(trial: Trial) -> Check:
    """Check that sessions share nothing."""
    author = trial.author
    if not author.stateful:
        return Check("an idle session", "none", "it keeps no state")
    problems = []
    for number, row in enumerate(trial.gold):
        other = trial.gold[(number + 1) % len(trial.gold)]
        problems += await _beside(trial, row, other)
    return checked("an idle session", problems, f"{len(trial.gold)} sessions beside busy ones keep their state")


async def _beside(trial: Trial, row: GoldRow, other: GoldRow) -> list[str]:
    """Compare the verdicts of a session that did nothing and one that did all, each beside another."""
    silent = reply("")
    alone = await trial.outcome(row.row, silent, f"{row.where}, an idle session alone")
    try:
        async with trial.session(row.row) as idle, trial.session(row.row) as right:
            for busy_row in (other, row):
                async with trial.session(busy_row.row) as busy:
                    played = await trial.play(busy_row.gold.actions, busy, f"{busy_row.where}, busy")
                    await trial.verified(busy, busy_row.row, played, f"{busy_row.where}, busy")
            beside = await trial.verified(idle, row.row, silent, f"{row.where}, idle")
            played = await trial.play(row.gold.actions, right, f"{row.where}, beside")
            earned = await trial.verified(right, row.row, played, f"{row.where}, beside")
    except RolloutError as error:
        return [f"{row.where}: {error.failure_class}: {error.message}"]
    problems = []
    if beside.reward != alone.reward:
        problems.append(f"{row.where}: a session that did nothing has {alone}, beside a busy one {beside}")
    if earned.reward is None or not math.isclose(earned.reward, row.reward, abs_tol=1e-6):
        problems.append(f"{row.where}: the gold reply after that of another session has {earned}")
    return problems


async def tools(trial: Trial) -> Check:
    """Check that tools answer arguments that do not fit."""
    row = trial.gold[0]
    if not trial.has_tools:
        return Check("tools", "none", "it has no tools")
    names = sorted({*trial.author.tools, *row.tool_names})
    problems, notes = [], []
    for name in names:
        for arguments in (*_ODD_ARGUMENTS, *_odd_arguments(trial, name)):
            where = f"{name}({msgspec.json.encode(arguments).decode()[:60]})"
            try:
                async with trial.session(row.row) as session:
                    found = await trial.call(session, name, arguments, where)
            except RolloutError as error:
                problems.append(f"{where}: {error.failure_class}: {error.message}")
                continue
            if isinstance(found, ToolResult) and found.status == 500:
                notes.append(f"{where}: {found.output[:200]}")  # the model reads it, and the rollout continues
            elif isinstance(found, RolloutError) and found.failure_class not in REFUSALS:
                problems.append(f"{where}: {found.failure_class}: {found.message}")
    return checked("tools", problems, f"{len(names)} tools answer odd arguments", notes)


def _odd_arguments(trial: Trial, name: str) -> Iterator[dict[str, Any]]:
    tool = trial.author.tools.get(name)
    fields = () if tool is None else tuple(tool.arguments.model_fields)
    for value in _ODD_VALUES if fields else ():
        yield dict.fromkeys(fields, value)
