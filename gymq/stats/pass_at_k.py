"""pass@k, average@k and majority@k for every k, from sums over tasks."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from functools import lru_cache
from itertools import accumulate

import msgspec

from gymq.stats.intervals import Estimate, mean_interval
from gymq.stats.sums import ExactSum, Moments

PERCENT = 100.0


class PassTotals(msgspec.Struct):
    """Tasks by how many of their rollouts pass."""

    # By (number of rollouts, number that do not pass); the key `zero_one` is used in stored states.
    tasks: dict[tuple[int, int], int] = msgspec.field(name="zero_one", default_factory=dict)

    def add(self, passed: Sequence[bool]) -> None:
        """Add a task: whether each of its rollouts passes."""
        key = (len(passed), passed.count(False))
        self.tasks[key] = self.tasks.get(key, 0) + 1

    def percent_at(self, k: int) -> Estimate:
        """Return pass@k in percent over the tasks with at least k rollouts, with an interval from its deviation."""
        total, terms = Moments(), []
        for (num_rollouts, num_failing), num_tasks in sorted(self.tasks.items()):
            if num_rollouts >= k:
                passing = pass_probabilities(num_rollouts, num_rollouts - num_failing)[k - 1]
                total.add(passing, num_tasks)
                terms.append(passing * num_tasks)
        num_tasks = round(total.weight)
        # Of an exact sum, so that it is rounded as the mean reward beside it is.
        mean = PERCENT * math.fsum(terms) / max(1, num_tasks)
        if num_tasks < 2:
            return Estimate(mean, None, num_tasks)
        # Equal values may leave a rounding error below zero.
        std_error = math.sqrt(max(0.0, total.squares) / (total.weight - 1) / total.weight)
        return Estimate(mean, mean_interval(mean, PERCENT * std_error, num_tasks, (0.0, PERCENT)), num_tasks)


class Curve(msgspec.Struct, array_like=True):
    """Means over tasks of a value for each k; a task with n rollouts keeps its value at n for larger k."""

    sums: list[ExactSum] = []  # at k - 1: over the tasks with at least k rollouts
    counts: list[int] = []
    last_sums: list[ExactSum] = []  # at n: over the tasks with exactly n rollouts, their value for k > n
    last_counts: list[int] = []

    def add(self, points: Sequence[float]) -> None:
        """Add a task by its values for k = 1 to n."""
        while len(self.sums) < len(points):
            self.sums.append(ExactSum())
            self.counts.append(0)
        while len(self.last_sums) <= len(points):
            self.last_sums.append(ExactSum())
            self.last_counts.append(0)
        for index, point in enumerate(points):
            self.sums[index].add(point)
            self.counts[index] += 1
        self.last_sums[len(points)].add(points[-1])
        self.last_counts[len(points)] += 1

    def means(self, ks: Sequence[int]) -> dict[int, float]:
        """Return in percent the means over all tasks, for those k that a task has reached."""
        means = {}
        for k in ks:
            sums, count = self.last_sums[:k], sum(self.last_counts[:k])
            if k <= len(self.sums):
                sums, count = [*sums, self.sums[k - 1]], count + self.counts[k - 1]
            if count:
                means[k] = PERCENT * (math.fsum(part for total in sums for part in total.parts) / count)
        return means


class RewardTotals(msgspec.Struct):
    """The mean and the majority among the first k rollouts of each task, summed over tasks."""

    max_k: int = 0  # largest number of rollouts of a task
    average: Curve = msgspec.field(default_factory=Curve)
    majority: Curve = msgspec.field(default_factory=Curve)

    def add(self, rewards: Sequence[float], answers: Sequence[Hashable | None]) -> None:
        """Add a task.

        Args:
            rewards: rewards of its rollouts, in the order of their indices.
            answers: answers of its rollouts; None without an answer.
        """
        self.max_k = max(self.max_k, len(rewards))
        self.average.add([total / k for k, total in enumerate(accumulate(rewards), 1)])
        self.majority.add(_majority_rewards(rewards, answers))


@lru_cache(maxsize=4096)
def pass_probabilities(num_samples: int, num_correct: int) -> tuple[float, ...]:
    """Return unbiased estimates, for k = 1 to `num_samples`, that at least one of k samples is correct.

    1 - C(n - c, k) / C(n, k), computed factor by factor to avoid large numbers.

    Source: Chen et al., "Evaluating Large Language Models Trained on Code", arXiv:2107.03374.
    """
    num_wrong = num_samples - num_correct
    all_wrong = 1.0
    estimates = []
    for drawn in range(num_samples):
        all_wrong *= max(0, num_wrong - drawn) / (num_samples - drawn)
        estimates.append(1.0 - all_wrong)
    return tuple(estimates)


def _majority_rewards(rewards: Sequence[float], answers: Sequence[Hashable | None]) -> list[float]:
    """At k - 1 the mean of the most frequent (answer, reward) pairs among the first k rollouts; 0 without any."""
    votes: dict[tuple[Hashable, float], int] = {}
    most, leading, leading_sum = 0, 0, 0.0
    found = []
    for reward, answer in zip(rewards, answers, strict=True):
        if answer is not None:
            count = votes[answer, reward] = votes.get((answer, reward), 0) + 1
            if count > most:
                most, leading, leading_sum = count, 1, reward
            elif count == most:
                leading, leading_sum = leading + 1, leading_sum + reward
        found.append(leading_sum / leading if leading else 0.0)
    return found
