"""The pass@k family written down a second time, straight from the definitions and as slowly as that is.

A task is the list of its rollouts, each a reward and an answer or None. All results are percentages.
"""

import statistics
from collections import Counter
from itertools import combinations

Task = list[tuple[float, str | None]]


def chance_to_pass(task: Task, k: int) -> float:
    """By looking at every choice of k rollouts."""
    choices = list(combinations([reward for reward, _ in task], k))
    return 100 * sum(any(reward >= 1 for reward in choice) for choice in choices) / len(choices)


def pass_at_k(tasks: list[Task], k: int) -> float:
    return statistics.fmean(chance_to_pass(task, k) for task in tasks if len(task) >= k)


def mean_reward(tasks: list[Task]) -> float:
    return statistics.fmean(statistics.fmean(reward for reward, _ in task) for task in tasks)


def majority(tasks: list[Task]) -> float:
    found = []
    for task in tasks:
        counts = Counter(answer for _, answer in task if answer is not None)
        top = [reward >= 1 for reward, answer in task if answer and counts[answer] == max(counts.values())]
        found.append(statistics.fmean(top) if top else 0.0)
    return 100 * statistics.fmean(found)
