"""Statistics over answers in memory, with the keys of NeMo Gym's report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gymq.data.rows import AGENT_REF
from gymq.stats.report import InputRow, ReportStream, result_row


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
        RowError: an answer occurs twice or has invalid indices.
    """
    if not verify_responses:
        return Aggregate([], {}, {})
    results = sorted(
        (result_row({"response": {}, **response}) for response in verify_responses), key=lambda result: result.key
    )
    rows = [InputRow(result.key, "agent", {AGENT_REF: {"name": "agent"}}) for result in results]
    stream = ReportStream()
    groups = list(stream.groups(rows, results))
    (agent,) = stream.agents()
    metrics = {name: value for name, value in agent.items() if name != AGENT_REF}
    return Aggregate(groups, metrics, {name: value for name, value in metrics.items() if name.startswith("mean/")})
