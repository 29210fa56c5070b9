"""Checks of an environment beyond its verdicts: malformed rows, concurrent sessions, malformed arguments."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import msgspec

from gymq.ext.audit.audited import CHECK_S, REFUSALS, AuditedEnvironment
from gymq.ext.audit.gold import GoldRow
from gymq.ext.audit.load import in_time
from gymq.ext.shared.checks import Check, checked
from gymq.failures import RolloutError
from gymq.protocol.messages import ToolResult
from gymq.render import counted
from gymq.testing.scripts import reply

_MALFORMED_VALUES: tuple[Any, ...] = (None, [], {}, "", "x", -1, 2**53, [[[{"a": None}]]], {"a": {"b": [None]}})
_MALFORMED_ARGUMENTS: tuple[Any, ...] = (
    None,
    {},
    [],
    "text",
    -1,
    {"no_such_argument": 1},
    [[[[None]]]],
)


async def malformed_rows(audited: AuditedEnvironment) -> Check:
    """Check that malformed rows are refused as invalid tasks, or verified."""
    row = audited.gold[0]
    problems = []
    count = 0
    for label, malformed in in_time(_malformed_fields(audited, row.row), CHECK_S):
        count += 1
        outcome = await audited.outcome(malformed, reply(""), f"{row.where}, {label}")
        if outcome.reward is None and outcome.failure not in REFUSALS:
            problems.append(f"{row.where}, {label}: {outcome}; a row that does not fit ends as invalid_task")
    return checked("malformed rows", problems, f"{counted(count, 'row')} refused or verified")


def _malformed_fields(audited: AuditedEnvironment, row: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    author = audited.author
    for field in {**author.row_type.model_fields, **author.seed_row_type.model_fields}:
        yield f"without `{field}`", {name: value for name, value in row.items() if name != field}
        for value in _MALFORMED_VALUES:
            yield f"`{field}` is {value!r:.40}", {**row, field: value}


async def idle_session(audited: AuditedEnvironment) -> Check:
    """Check that sessions do not share state."""
    author = audited.author
    if not author.stateful:
        return Check("an idle session", "none", "it keeps no state")
    problems = []
    for number, row in enumerate(audited.gold):
        other = audited.gold[(number + 1) % len(audited.gold)]
        problems += await _interleaved(audited, row, other)
    return checked("an idle session", problems, f"{len(audited.gold)} sessions beside busy ones keep their state")


async def _interleaved(audited: AuditedEnvironment, row: GoldRow, other: GoldRow) -> list[str]:
    """Compare the verdicts of an idle and of a complete session, each while another session is busy."""
    silent = reply("")
    alone = await audited.outcome(row.row, silent, f"{row.where}, an idle session alone")
    try:
        async with audited.session(row.row) as idle, audited.session(row.row) as right:
            for busy_row in (other, row):
                async with audited.session(busy_row.row) as busy:
                    response = await audited.play(busy_row.gold.actions, busy, f"{busy_row.where}, busy")
                    await audited.verified(busy, busy_row.row, response, f"{busy_row.where}, busy")
            idle_outcome = await audited.verified(idle, row.row, silent, f"{row.where}, idle")
            response = await audited.play(row.gold.actions, right, f"{row.where}, beside")
            gold_outcome = await audited.verified(right, row.row, response, f"{row.where}, beside")
    except RolloutError as error:
        return [f"{row.where}: {error.failure_class}: {error.message}"]
    problems = []
    if idle_outcome.reward != alone.reward:
        problems.append(f"{row.where}: a session that did nothing has {alone}, beside a busy one {idle_outcome}")
    if gold_outcome.reward is None or not math.isclose(gold_outcome.reward, row.reward, abs_tol=1e-6):
        problems.append(f"{row.where}: the gold reply after that of another session has {gold_outcome}")
    return problems


async def tools(audited: AuditedEnvironment) -> Check:
    """Check that tools answer malformed arguments."""
    row = audited.gold[0]
    if not audited.has_tools:
        return Check("tools", "none", "it has no tools")
    names = sorted({*audited.author.tools, *row.tool_names})
    problems, notes = [], []
    for name in names:
        odd = (*_MALFORMED_ARGUMENTS, *_malformed_arguments(audited, name))
        for arguments in in_time(odd, CHECK_S / len(names)):
            where = f"{name}({msgspec.json.encode(arguments).decode()[:60]})"
            try:
                async with audited.session(row.row) as session:
                    outcome = await audited.call(session, name, arguments, where)
            except RolloutError as error:
                problems.append(f"{where}: {error.failure_class}: {error.message}")
                continue
            if isinstance(outcome, ToolResult) and outcome.status == 500:
                notes.append(f"{where}: {outcome.output[:200]}")  # the model reads it, and the rollout continues
            elif isinstance(outcome, RolloutError) and outcome.failure_class not in REFUSALS:
                problems.append(f"{where}: {outcome.failure_class}: {outcome.message}")
    return checked("tools", problems, f"{len(names)} tools answer odd arguments", notes)


def _malformed_arguments(audited: AuditedEnvironment, name: str) -> Iterator[dict[str, Any]]:
    tool = audited.author.tools.get(name)
    fields = () if tool is None else tuple(tool.arguments.model_fields)
    for value in _MALFORMED_VALUES if fields else ():
        yield dict.fromkeys(fields, value)
