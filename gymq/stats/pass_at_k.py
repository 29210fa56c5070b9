"""pass@k for every k and the majority of a task's answers, from sums over tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from functools import lru_cache

import msgspec

from gymq.stats.intervals import Estimate, TaskMeans

PERCENT = 100.0


class PassTotals(msgspec.Struct):
    """Tasks by how many of their rollouts pass."""

    tasks: dict[tuple[int, int], int] = {}  # by (number of rollouts, number that do not pass)

    def add(self, passed: Sequence[bool]) -> None:
        """Add a task: whether each of its rollouts passes."""
        key = (len(passed), passed.count(False))
        self.tasks[key] = self.tasks.get(key, 0) + 1

    def merge(self, other: PassTotals) -> None:
        """Add the tasks of other totals."""
        for key, num_tasks in other.tasks.items():
            self.tasks[key] = self.tasks.get(key, 0) + num_tasks

    @property
    def max_k(self) -> int:
        """The largest number of rollouts of a task."""
        return max((num_rollouts for num_rollouts, _ in self.tasks), default=0)

    def percent_at(self, k: int) -> Estimate | None:
        """Return pass@k in percent over the tasks with at least k rollouts; None if there are none."""
        means = TaskMeans()
        for (num_rollouts, num_failing), num_tasks in sorted(self.tasks.items()):
            if num_rollouts >= k:
                means.add(pass_probabilities(num_rollouts, num_rollouts - num_failing)[k - 1], num_tasks)
        return means.estimate((0.0, PERCENT), PERCENT)


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


def majority_passes(answers: Sequence[Hashable | None], passed: Sequence[bool]) -> float:
    """Return whether the answer that most rollouts of a task give passes, as 0 or 1.

    If answers have equally many rollouts, or one is not always judged the same, it is the part of their rollouts that
    passes. It is 0 without answers, and never more than whether any rollout passes.

    Args:
        answers: of the rollouts of the task; None without an answer.
        passed: whether each of them passes.
    """
    votes = Counter(answer for answer in answers if answer is not None)
    most = max(votes.values(), default=0)
    leading = [passes for answer, passes in zip(answers, passed, strict=True) if votes[answer] == most]
    return sum(leading) / len(leading) if most else 0.0
