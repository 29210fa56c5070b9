"""pass@k and its relatives over the tasks of a run: definitions of the metrics that are written and compared.

A task is the list of its rollouts' result rows, in the order of their rollout indices. All values are percentages but
`avg_sample_std_dev`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from gymq.intervals import Interval
from gymq.moments import is_usable, sample_std
from gymq.score_totals import PERCENT, ScoreTotals

Result = Mapping[str, Any]
Task = Sequence[Result]
ScoreFunction = Callable[[Result], Mapping[str, Any]]

NO_ANSWER = "no_answer"

_DEVIATIONS = ("std_dev_across_runs", "std_err_across_runs", "avg_sample_std_dev")


class MetricError(ValueError):
    """Results of which the metrics asked for cannot be made. The text names task, rollout and member."""


class PassAtK(NamedTuple):
    """What `pass_at_k_metrics` found."""

    metrics: dict[str, Any]
    score_names: list[str]
    max_k: int  # largest number of rollouts of a task
    intervals: dict[str, Interval]  # by the name of a pass@k metric; 95 % over tasks, where there are enough


def accuracy(result: Result) -> dict[str, Any]:
    """The default score: the reward, under the name `accuracy`."""
    return {"accuracy": result.get("reward")}


def member_scores(names: Sequence[str]) -> ScoreFunction:
    """A score for each named member that a result has; null counts as not having it."""

    def scores(result: Result) -> dict[str, Any]:
        return {name: result[name] for name in names if result.get(name) is not None}

    return scores


def pass_at_k_metrics(
    tasks: Sequence[Task],
    *,
    scores: ScoreFunction = accuracy,
    answer_key: str | None = None,
    sample_std_dev: bool = False,
) -> PassAtK:
    """All metrics of the pass@k family for k = 1 up to the largest number of rollouts of a task.

    For each score s:

    * `pass@k/s`, over tasks with at least k values of s. Tasks with the values 0 and 1 only: the unbiased estimate
      that one of k rollouts has a 1, see `gymq.score_totals.pass_at_k`. Other tasks: the largest of the first k values.
    * `pass@1[avg-of-k]/s`: mean of the first k rollouts, then over tasks; `…/std_dev_across_runs` and
      `…/std_err_across_runs` from how the mean over tasks differs between first, second, … rollouts.
    * `majority@k/s`, with `answer_key`: score of the most frequent (answer, score) pair among the first k rollouts,
      ties averaged, 0 without answers. `no_answer` becomes a score: 1 for a rollout without answer.
    * `per_sample_aggregate`: for each score the means over tasks of first, second, … rollouts.
    * `pass@1[avg-of-k]/s/avg_sample_std_dev`, with `sample_std_dev`: mean over tasks of the sample standard
      deviation of their first k values; no percentage.

    Raises:
        MetricError: a score is no finite number, or an answer is neither text nor number.
    """
    columns = [_columns(task, number, scores, answer_key is not None) for number, task in enumerate(tasks)]
    answers = [_answers(task, number, answer_key) for number, task in enumerate(tasks)] if answer_key else None
    if answers is not None:
        for column, given in zip(columns, answers, strict=True):
            column[NO_ANSWER] = [float(answer is None) for answer in given]
    names = sorted({name for column in columns for name in column if column[name]})
    totals = {}
    for name in names:
        totals[name] = total = ScoreTotals()
        for number, task in enumerate(tasks):
            values = columns[number].get(name) or [None] * len(task)
            total.add(values, answers[number] if answers else None, sample_deviation=sample_std_dev)
    max_k = max((len(task) for task in tasks), default=0)
    metrics = _metrics(totals, max_k, majority=answers is not None, sample_std_dev=sample_std_dev) if tasks else {}
    return PassAtK(metrics, names, max_k, _intervals(totals, max_k))


def subset_metrics(
    tasks: Sequence[Task],
    subset_key: str,
    *,
    scores: ScoreFunction = accuracy,
    answer_key: str | None = None,
) -> dict[str, Any]:
    """The same metrics for each value of a member, under `<value>/<metric>`.

    A task belongs to the value in its first rollout; tasks whose value is missing or empty are left out.

    Raises:
        MetricError: as `pass_at_k_metrics`; or the member is an object or an array.
    """
    subsets: dict[Any, list[Task]] = {}
    for number, task in enumerate(tasks):
        value = task[0].get(subset_key) if task else None
        if isinstance(value, dict | list):
            raise MetricError(f"task {number}: `{subset_key}` must be a text or a number to make subsets by")
        if value:
            subsets.setdefault(value, []).append(task)
    metrics = {}
    for value, members in subsets.items():
        found = pass_at_k_metrics(members, scores=scores, answer_key=answer_key).metrics
        metrics.update({f"{value}/{name}": entry for name, entry in found.items() if name != "per_sample_aggregate"})
    return metrics


def highest_k(
    metrics: Mapping[str, Any],
    pattern: str,
    *,
    score_names: Sequence[str] | None = None,
    exclude_names: Sequence[str] | None = None,
) -> dict[str, Any]:
    """The headline: the entries with the largest k among those that fit a pattern such as `pass@1[avg-of-{k}]`.

    Args:
        metrics: as `pass_at_k_metrics` made them.
        pattern: a metric's name up to the score's, with `{k}` once.
        score_names: only these scores.
        exclude_names: none of these scores.

    Raises:
        MetricError: the pattern does not have `{k}` exactly once.
    """
    before, *after = pattern.split("{k}")
    if len(after) != 1:
        raise MetricError(f"the pattern {pattern!r} must have {{k}} exactly once")
    form = re.compile(f"{re.escape(before)}(?P<k>[0-9]+){re.escape(after[0])}/(?P<score>.+)", re.DOTALL)
    found: dict[int, dict[str, Any]] = {}
    for name, value in metrics.items():
        match = form.fullmatch(name)
        if match is None or match["score"].endswith(_DEVIATIONS):
            continue
        wanted = score_names is None or match["score"] in score_names
        if wanted and match["score"] not in (exclude_names or ()):
            found.setdefault(int(match["k"]), {})[name] = value
    return found[max(found)] if found else {}


def _columns(task: Task, number: int, scores: ScoreFunction, without_no_answer: bool) -> dict[str, list[float | None]]:
    """The values of each score, a rollout each; None where a rollout does not have the score."""
    columns: dict[str, list[float | None]] = {}
    for position, result in enumerate(task):
        for name, value in scores(result).items():
            if name == NO_ANSWER and without_no_answer:
                continue
            if not isinstance(value, int | float) or not is_usable(value):
                raise MetricError(
                    f"task {number}, rollout {position}: the score `{name}` is {value!r}, no usable number"
                )
            columns.setdefault(name, [None] * len(task))[position] = float(value)
    return columns


def _answers(task: Task, number: int, answer_key: str) -> list[Hashable | None]:
    answers = [result.get(answer_key) for result in task]
    for position, answer in enumerate(answers):
        if isinstance(answer, dict | list):
            raise MetricError(
                f"task {number}, rollout {position}: the answer `{answer_key}` must be a text or a number to be counted"
            )
    return answers


def _metrics(totals: Mapping[str, ScoreTotals], max_k: int, *, majority: bool, sample_std_dev: bool) -> dict[str, Any]:
    metrics: dict[str, Any] = {}
    for k in range(1, max_k + 1):
        for name, total in totals.items():
            passed = total.pass_at(k)
            _put(metrics, f"pass@{k}/{name}", passed.mean if passed.weight else None, PERCENT)
            _put(metrics, f"pass@1[avg-of-{k}]/{name}", total.average.mean(k), PERCENT)
            if majority:
                _put(metrics, f"majority@{k}/{name}", total.majority.mean(k), PERCENT)
    runs = {name: _means_of_rollouts(total, max_k) for name, total in totals.items()}
    metrics["per_sample_aggregate"] = {name: means for name, means in runs.items() if means}
    for k in range(2, max_k + 1):
        for name, total in totals.items():
            entry = f"pass@1[avg-of-{k}]/{name}"
            first = runs[name][:k]
            std_dev = sample_std(first)
            if std_dev is not None:
                metrics[f"{entry}/std_dev_across_runs"] = std_dev
                metrics[f"{entry}/std_err_across_runs"] = std_dev / math.sqrt(len(first))
            if sample_std_dev:
                _put(metrics, f"{entry}/avg_sample_std_dev", total.spread.mean(k), 1.0)
    return metrics


def _means_of_rollouts(total: ScoreTotals, max_k: int) -> list[float]:
    means = (total.by_rollout.mean_of_rollout(position) for position in range(max_k))
    return [PERCENT * value for value in means if value is not None]


def _intervals(totals: Mapping[str, ScoreTotals], max_k: int) -> dict[str, Interval]:
    found = {f"pass@{k}/{name}": total.pass_interval(k) for k in range(1, max_k + 1) for name, total in totals.items()}
    return {name: interval for name, interval in found.items() if interval is not None}


def _put(metrics: dict[str, Any], name: str, value: float | None, scale: float) -> None:
    if value is not None:
        metrics[name] = scale * value
