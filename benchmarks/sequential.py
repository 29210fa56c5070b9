"""Do the stated intervals cover as often as they say, when a task stops as soon as its interval is narrow enough?

python -m benchmarks.sequential --runs 10000

Simulates runs over tasks whose pass rates are spread in several ways, and prints how many of the intervals contain the
pass rate, and how many rollouts there are next to as many for each task as the hardest to know needs. Then the same for
the mean of graded rewards.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gymq.ext.sampling.sequential import mean_reward_interval, pass_rate_interval
from gymq.stats.intervals import Interval

TASKS_OF_A_RUN = 20
MOST = 512
NEAR = 0.05

_SCALE = Interval(0.0, 1.0)

Rates = NDArray[np.float64]


def _near(rate: float) -> Callable[[np.random.Generator, int], Rates]:
    return lambda chance, size: chance.uniform(max(0.0, rate - NEAR), min(1.0, rate + NEAR), size)


SPREADS: dict[str, Callable[[np.random.Generator, int], Rates]] = {
    "even": lambda chance, size: chance.random(size),
    "mostly easy or hard": lambda chance, size: chance.beta(0.5, 0.5, size),
    "mostly hard": lambda chance, size: chance.beta(1, 3, size),
    "middling": lambda chance, size: chance.beta(3, 3, size),
    "around one half": lambda chance, size: chance.beta(10, 10, size),
    **{f"near {rate:g}": _near(rate) for rate in (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)},
}

Grades = Callable[[np.random.Generator, float, int], Rates]


def _beta(concentration: float) -> Grades:
    return lambda chance, mean, size: chance.beta(mean * concentration, (1 - mean) * concentration, size)


# Rewards of a task with a mean; the means are spread evenly.
GRADES: dict[str, Grades] = {
    "alike": _beta(20.0),
    "spread": _beta(4.0),
    "wide": _beta(1.0),
    "nearly 0 or 1": _beta(0.3),
    "five tests": lambda chance, mean, size: chance.binomial(5, mean, size) / 5,
}


@dataclass
class Simulated:
    """What came of simulated runs.

    Attributes:
        covered: share of the intervals that contain the pass rate.
        rollouts: of a task, in the mean.
        fixed: rollouts that each task needs if its number is fixed in advance, for intervals as narrow.
    """

    covered: float
    rollouts: float
    fixed: int


def simulate(rates: Rates, narrower_than: float, at_once: int, chance: np.random.Generator) -> Simulated:
    """Sample tasks of these pass rates, so many rollouts at a time, until their intervals are narrow enough."""
    passed = np.zeros(len(rates), dtype=np.int64)
    running = np.arange(len(rates))
    covered = rollouts = size = 0
    while len(running):
        passed[running] += chance.binomial(at_once, rates[running])
        size += at_once
        intervals = [pass_rate_interval(count, size - count) for count in range(size + 1)]
        low = np.array([interval.low for interval in intervals])
        high = np.array([interval.high for interval in intervals])
        is_last = size + at_once > MOST
        ends = (high - low <= narrower_than)[passed[running]] | is_last
        ended, running = running[ends], running[~ends]
        counts, rate = passed[ended], rates[ended]
        covered += int(((low[counts] <= rate) & (rate <= high[counts])).sum())
        rollouts += size * len(ended)
    return Simulated(covered / len(rates), rollouts / len(rates), fixed_size(narrower_than, at_once))


def simulate_graded(
    grades: Grades, num_tasks: int, narrower_than: float, at_once: int, chance: np.random.Generator
) -> Simulated:
    """Sample tasks with graded rewards, so many rollouts at a time, until the intervals of their means are narrow."""
    covered = rollouts = 0
    for mean in chance.uniform(0.02, 0.98, num_tasks):
        rewards: list[float] = []
        interval = _SCALE
        while interval.width > narrower_than and len(rewards) + at_once <= MOST:
            rewards += grades(chance, mean, at_once).tolist()
            interval = mean_reward_interval(rewards, _SCALE)
        covered += interval.low <= mean <= interval.high
        rollouts += len(rewards)
    return Simulated(covered / num_tasks, rollouts / num_tasks, fixed_size(narrower_than, at_once))


def fixed_size(narrower_than: float, at_once: int) -> int:
    """The rollouts after which the interval of any task is narrow enough."""
    sizes = range(at_once, MOST + 1, at_once)
    return next((size for size in sizes if pass_rate_interval(size // 2, size // 2).width <= narrower_than), MOST)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--narrower-than", type=float, default=0.3)
    parser.add_argument("--at-once", type=int, default=8, help="rollouts that are added to a task at a time")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    print(f"{given.runs:,} runs of {TASKS_OF_A_RUN} tasks, until an interval is narrower than {given.narrower_than:g}")
    for spread, draw in SPREADS.items():
        chance = np.random.default_rng(given.seed)
        rates = draw(chance, given.runs * TASKS_OF_A_RUN)
        show(spread, simulate(rates, given.narrower_than, given.at_once, chance))
    print(f"graded rewards, {given.runs:,} tasks")
    for name, grades in GRADES.items():
        chance = np.random.default_rng(given.seed)
        show(name, simulate_graded(grades, given.runs, given.narrower_than, given.at_once, chance))


def show(name: str, done: Simulated) -> None:
    print(
        f"{name:>20}: {done.covered:.2%} covered, {done.rollouts:.1f} rollouts a task, "
        f"{1 - done.rollouts / done.fixed:.0%} fewer than {done.fixed}"
    )


if __name__ == "__main__":
    main()
