"""Statistics over all results of one worker, with the metrics that the worker itself makes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from gymq.profile import profile, row_key
from gymq.rows import AGENT_REF, ROLLOUT_INDEX, TASK_INDEX

Tasks = list[list[Mapping[str, Any]]]


class Aggregate(NamedTuple):
    """Statistics of one worker's results, in the form that is written."""

    group_level_metrics: list[dict[str, Any]]
    agent_metrics: dict[str, Any]
    key_metrics: dict[str, Any]


def aggregate(
    verify_responses: Sequence[Mapping[str, Any]],
    compute_metrics: Callable[[Tasks], Mapping[str, Any]] | None = None,
    key_metrics: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None,
) -> Aggregate:
    """Statistics over the verify answers of one worker.

    Args:
        verify_responses: answers with indices; those without `response` have no token usage.
        compute_metrics: gets the answers of each task, by task and rollout index; its entries join `agent_metrics`,
            but those of the list `per_task_metrics` join the group with the same task index.
        key_metrics: picks the headline out of `agent_metrics`; default: all means.

    Raises:
        ProfileError: as `gymq.profile.profile`.
    """
    if not verify_responses:
        return Aggregate([], {}, {})
    results = [{"response": {}, **response} for response in verify_responses]
    groups, agents = profile([_input_row(result) for result in results], results)
    metrics = {name: value for name, value in agents[0].items() if name != AGENT_REF}
    if compute_metrics is not None:
        own = dict(compute_metrics(_tasks(verify_responses)))
        extra = {entry[TASK_INDEX]: entry for entry in own.pop("per_task_metrics", None) or ()}
        groups = [{**group, **extra.get(group[TASK_INDEX], {})} for group in groups]
        metrics.update(own)
    return Aggregate(groups, metrics, dict((key_metrics or _means)(metrics)))


def _input_row(result: Mapping[str, Any]) -> dict[str, Any]:
    task_index, rollout_index = row_key(result)
    return {TASK_INDEX: task_index, ROLLOUT_INDEX: rollout_index, AGENT_REF: {"name": "agent"}}


def _tasks(verify_responses: Iterable[Mapping[str, Any]]) -> Tasks:
    ordered = sorted(verify_responses, key=row_key)
    return [list(task) for _, task in groupby(ordered, lambda response: response[TASK_INDEX])]


def _means(metrics: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in metrics.items() if name.startswith("mean/")}
