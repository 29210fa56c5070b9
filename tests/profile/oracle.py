"""The pass@k family written down a second time, straight from the definitions and as slowly as that is."""

import math
import statistics
from collections import Counter
from itertools import combinations
from typing import Any

Task = list[dict[str, Any]]


def chance_that_one_of_k_is_right(values: list[float], k: int) -> float:
    """By looking at every choice of k samples."""
    choices = list(combinations(values, k))
    return sum(any(value == 1 for value in choice) for choice in choices) / len(choices)


def pass_at_k(tasks: list[Task], score: str, k: int) -> float | None:
    found = []
    for task in tasks:
        values = [result[score] for result in task if score in result]
        if len(values) >= k:
            binary = all(value in (0, 1) for value in values)
            found.append(chance_that_one_of_k_is_right(values, k) if binary else max(values[:k]))
    return 100 * statistics.fmean(found) if found else None


def avg_of_k(tasks: list[Task], score: str, k: int) -> float | None:
    first = [[result[score] for result in task[:k] if score in result] for task in tasks]
    means = [statistics.fmean(values) for values in first if values]
    return 100 * statistics.fmean(means) if means else None


def majority_at_k(tasks: list[Task], score: str, k: int) -> float:
    found = []
    for task in tasks:
        pairs = [(r["ans"], r[score]) for r in task[:k] if r.get("ans") is not None and score in r]
        counts = Counter(pairs)
        top = [value for (_, value), count in counts.items() if count == max(counts.values())]
        found.append(statistics.fmean(top) if top else 0.0)
    return 100 * statistics.fmean(found)


def means_of_rollouts(tasks: list[Task], score: str) -> list[float]:
    longest = max((len(task) for task in tasks), default=0)
    columns = [[t[i][score] for t in tasks if i < len(t) and score in t[i]] for i in range(longest)]
    return [100 * statistics.fmean(column) for column in columns if column]


def metrics(tasks: list[Task], scores: list[str]) -> dict[str, Any]:
    """All metrics of tasks whose results have the answer `ans`, with the sample deviations."""
    tasks = [[{**result, "no_answer": float(result.get("ans") is None)} for result in task] for task in tasks]
    present = [name for name in sorted({*scores, "no_answer"}) if any(name in r for task in tasks for r in task)]
    found: dict[str, Any] = {}
    runs = {name: means_of_rollouts(tasks, name) for name in present}
    found["per_sample_aggregate"] = runs
    for k in range(1, max((len(task) for task in tasks), default=0) + 1):
        for name in present:
            entry = f"pass@1[avg-of-{k}]/{name}"
            found[f"pass@{k}/{name}"] = pass_at_k(tasks, name, k)
            found[entry] = avg_of_k(tasks, name, k)
            found[f"majority@{k}/{name}"] = majority_at_k(tasks, name, k)
            if k >= 2 and len(runs[name][:k]) >= 2:
                std = statistics.stdev(runs[name][:k])
                found[f"{entry}/std_dev_across_runs"] = std
                found[f"{entry}/std_err_across_runs"] = std / math.sqrt(len(runs[name][:k]))
            first = [[r[name] for r in task[:k] if name in r] for task in tasks]
            spreads = [statistics.stdev(values) for values in first if len(values) >= 2]
            if k >= 2 and spreads:
                found[f"{entry}/avg_sample_std_dev"] = statistics.fmean(spreads)
    return {name: value for name, value in found.items() if value is not None}
