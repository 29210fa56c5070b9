"""Statistics over results in memory, with the keys of NeMo Gym's report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from gymq.data.rows import AGENT_REF, ROLLOUT_INDEX, TASK_INDEX, RowError
from gymq.stats.report import InputRow, ReportStream, result_row, row_key


class Report(NamedTuple):
    """Statistics of a run, in the form that is written."""

    groups: list[dict[str, Any]]  # per task, by task index
    agents: list[dict[str, Any]]  # per agent, by name


def report(
    rows: Iterable[Mapping[str, Any]], results: Iterable[Mapping[str, Any]], allow_partial: bool = False
) -> Report:
    """Compute statistics of a run's results, in any order.

    Args:
        rows: the materialised rows.
        results: the output rows.
        allow_partial: whether rows may lack a result; tasks without any result are then left out.

    Raises:
        RowError: a row or result occurs twice or has invalid indices, a result has no row, or a row no result.
    """
    stream = ReportStream(allow_partial=allow_partial)
    by_key = (
        sorted((input_row(row) for row in rows), key=lambda entry: entry.key),
        sorted((result_row(row) for row in results), key=lambda entry: entry.key),
    )
    groups = list(stream.groups(*by_key))
    return Report(groups, stream.agents())


class Aggregate(NamedTuple):
    """Statistics of one worker's results, in the form that is written."""

    group_level_metrics: list[dict[str, Any]]
    agent_metrics: dict[str, Any]
    key_metrics: dict[str, Any]


def aggregate(verify_responses: Sequence[Mapping[str, Any]]) -> Aggregate:
    """Compute statistics over the verify answers of one worker; the key metrics are the means.

    Args:
        verify_responses: answers with indices; those without `response` have no token usage.

    Raises:
        RowError: as `report`.
    """
    if not verify_responses:
        return Aggregate([], {}, {})
    results = [{"response": {}, **response} for response in verify_responses]
    groups, agents = report([_row_of(result) for result in results], results)
    metrics = {name: value for name, value in agents[0].items() if name != AGENT_REF}
    return Aggregate(groups, metrics, {name: value for name, value in metrics.items() if name.startswith("mean/")})


def input_row(row: Mapping[str, Any]) -> InputRow:
    """Return the part of a materialised row that the report needs.

    Raises:
        RowError: it has no usable indices, or no agent.
    """
    key = row_key(row)
    reference = row.get(AGENT_REF)
    name = reference.get("name") if isinstance(reference, Mapping) else None
    if not isinstance(name, str):
        raise RowError(f"the row of rollout {key} names no agent: it needs `{AGENT_REF}` with a `name`")
    return InputRow(key, name, row)


def _row_of(result: Mapping[str, Any]) -> dict[str, Any]:
    task_index, rollout_index = row_key(result)
    return {TASK_INDEX: task_index, ROLLOUT_INDEX: rollout_index, AGENT_REF: {"name": "agent"}}
