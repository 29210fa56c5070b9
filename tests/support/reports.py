"""The report of a run whose rows and results are in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from gymq.data.rows import AGENT_REF
from gymq.stats.report import InputRow, ReportStream, result_row, row_key


class Report(NamedTuple):
    """Statistics of a run, in the form that is written."""

    groups: list[dict[str, Any]]  # per task, by task index
    agents: list[dict[str, Any]]  # per agent, by name


def report(
    rows: Iterable[Mapping[str, Any]], results: Iterable[Mapping[str, Any]], allow_partial: bool = False
) -> Report:
    """Statistics of a run's results, in any order."""
    stream = ReportStream(allow_partial=allow_partial)
    of_rows = [InputRow(row_key(row), row[AGENT_REF]["name"], row) for row in rows]
    of_results = [result_row(result) for result in results]
    groups = list(
        stream.groups(sorted(of_rows, key=lambda row: row.key), sorted(of_results, key=lambda result: result.key))
    )
    return Report(groups, stream.agents())
