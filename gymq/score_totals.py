"""Sums over tasks from which pass@k and its relatives follow for every k, without keeping the tasks."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from functools import lru_cache

import msgspec

from gymq.intervals import Interval, mean_interval
from gymq.moments import ExactSum, Moments, sample_std

PERCENT = 100.0


class Curve(msgspec.Struct, array_like=True):
    """Means over tasks of a value for each k, where a task with n rollouts keeps its value at n for every larger k."""

    sums: list[ExactSum] = []  # at k - 1: over the tasks with at least k rollouts
    counts: list[int] = []
    last_sums: list[ExactSum] = []  # at n: over the tasks with exactly n rollouts, their value for k > n
    last_counts: list[int] = []

    def add(self, points: Sequence[float | None], last: float | None) -> None:
        """Add a task: its values for k = 1 to n and for any larger k. None: the task has no value there."""
        while len(self.sums) < len(points):
            self.sums.append(ExactSum())
            self.counts.append(0)
        while len(self.last_sums) <= len(points):
            self.last_sums.append(ExactSum())
            self.last_counts.append(0)
        for index, point in enumerate(points):
            if point is not None:
                self.sums[index].add(point)
                self.counts[index] += 1
        if last is not None:
            self.last_sums[len(points)].add(last)
            self.last_counts[len(points)] += 1

    def mean(self, k: int) -> float | None:
        """Mean over the tasks that have a value at k."""
        sums, count = self.last_sums[:k], sum(self.last_counts[:k])
        if k <= len(self.sums):
            sums, count = [*sums, self.sums[k - 1]], count + self.counts[k - 1]
        return math.fsum(part for total in sums for part in total.parts) / count if count else None

    def mean_of_rollout(self, position: int) -> float | None:
        """Mean over the tasks that have a value at a position counted from 0, larger k's of no concern."""
        count = self.counts[position] if position < len(self.counts) else 0
        return self.sums[position].value() / count if count else None


class ScoreTotals(msgspec.Struct):
    """Everything about one score that is added up over tasks.

    A task is given by its rollouts' values in order; None where a rollout does not have the score.
    """

    max_k: int = 0  # largest number of rollouts of a task
    low: float = math.inf
    high: float = -math.inf
    zero_one: dict[tuple[int, int], int] = {}  # tasks by (number of values, zeros among them), all values 0 or 1
    best: list[Moments] = []  # at k - 1: largest of the first k values, over the other tasks with at least k values
    average: Curve = msgspec.field(default_factory=Curve)
    majority: Curve = msgspec.field(default_factory=Curve)
    spread: Curve = msgspec.field(default_factory=Curve)
    by_rollout: Curve = msgspec.field(default_factory=Curve)

    def add(
        self,
        values: Sequence[float | None],
        answers: Sequence[Hashable | None] | None = None,
        *,
        sample_deviation: bool = False,
    ) -> None:
        """Add a task.

        Args:
            values: its rollouts' values in the order of their indices.
            answers: what each rollout answered, if the majority is wanted; None where it gave no answer.
            sample_deviation: whether the deviation among the task's first k values is wanted.
        """
        self.max_k = max(self.max_k, len(values))
        present = [value for value in values if value is not None]
        if present:
            self.low, self.high = min(self.low, *present), max(self.high, *present)
            self._add_best(present)
        averages = _averages(values)
        self.average.add(averages, averages[-1] if averages else None)
        self.by_rollout.add(values, None)
        if answers is not None:
            votes = _majority_scores(values, answers)
            self.majority.add(votes, votes[-1] if votes else 0.0)
        if sample_deviation:
            deviations = [_deviation(values[:k]) for k in range(1, len(values) + 1)]
            self.spread.add(deviations, deviations[-1] if deviations else None)

    def pass_at(self, k: int) -> Moments:
        """Mean and squared deviations, over the tasks with at least k values, of the chance that k rollouts succeed.

        For tasks with values other than 0 and 1 it is the largest of the first k values instead.
        """
        total = Moments()
        for (num_values, num_zeros), num_tasks in sorted(self.zero_one.items()):
            if num_values >= k:
                total.add(pass_at_k(num_values, num_values - num_zeros)[k - 1], num_tasks)
        if k <= len(self.best):
            total.merge(self.best[k - 1])
        return total

    def pass_interval(self, k: int) -> Interval | None:
        """Interval of pass@k in percent, from the standard error over tasks."""
        total = self.pass_at(k)
        if total.weight < 2:
            return None
        # Equal values may leave a rounding error below zero.
        std_error = math.sqrt(max(0.0, total.squares) / (total.weight - 1) / total.weight)
        bounds = (0.0, PERCENT) if self.low >= 0 and self.high <= 1 else None
        return mean_interval(PERCENT * total.mean, PERCENT * std_error, round(total.weight), bounds)

    def _add_best(self, present: list[float]) -> None:
        if all(value in (0, 1) for value in present):
            key = (len(present), present.count(0))
            self.zero_one[key] = self.zero_one.get(key, 0) + 1
            return
        while len(self.best) < len(present):
            self.best.append(Moments())
        best = -math.inf
        for index, value in enumerate(present):
            best = max(best, value)
            self.best[index].add(best)


@lru_cache(maxsize=4096)
def pass_at_k(num_samples: int, num_correct: int) -> tuple[float, ...]:
    """Unbiased estimates, for k = 1 to `num_samples`, that at least one of k samples is correct.

    1 - C(n - c, k) / C(n, k), multiplied out factor by factor, so that no large number occurs.

    Source: Chen et al., "Evaluating Large Language Models Trained on Code", arXiv:2107.03374.
    """
    num_wrong = num_samples - num_correct
    all_wrong = 1.0
    estimates = []
    for drawn in range(num_samples):
        all_wrong *= max(0, num_wrong - drawn) / (num_samples - drawn)
        estimates.append(1.0 - all_wrong)
    return tuple(estimates)


def _averages(values: Sequence[float | None]) -> list[float | None]:
    """At k - 1 the mean of the values among the first k rollouts."""
    averages: list[float | None] = []
    total, count = 0.0, 0
    for value in values:
        if value is not None:
            total, count = total + value, count + 1
        averages.append(total / count if count else None)
    return averages


def _majority_scores(values: Sequence[float | None], answers: Sequence[Hashable | None]) -> list[float]:
    """At k - 1 the mean score of the most frequent (answer, score) pairs among the first k rollouts; 0 without any."""
    votes: dict[tuple[Hashable, float], int] = {}
    most, leading, leading_sum = 0, 0, 0.0
    scores = []
    for value, answer in zip(values, answers, strict=True):
        if value is not None and answer is not None:
            count = votes[answer, value] = votes.get((answer, value), 0) + 1
            if count > most:
                most, leading, leading_sum = count, 1, value
            elif count == most:
                leading, leading_sum = leading + 1, leading_sum + value
        scores.append(leading_sum / leading if leading else 0.0)
    return scores


def _deviation(values: Sequence[float | None]) -> float | None:
    return sample_std([value for value in values if value is not None])
