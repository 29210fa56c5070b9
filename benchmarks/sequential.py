"""Do the stated intervals cover as often as they say, when a task stops as soon as its interval is narrow enough?

python -m benchmarks.sequential --runs 10000

Simulates runs over tasks with pass rates that are spread evenly, and over others, and prints how many of the intervals
contain the pass rate, and how many rollouts there are next to as many for each task as the hardest to know needs.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable
from dataclasses import dataclass

from gymq.stats.sequential import pass_rate_interval, width

TASKS_OF_A_RUN = 20
AT_ONCE = 4
MOST = 256
SPREADS: dict[str, Callable[[random.Random], float]] = {
    "even": lambda chance: chance.random(),
    "mostly easy or hard": lambda chance: chance.betavariate(0.5, 0.5),
    "mostly hard": lambda chance: chance.betavariate(1, 3),
    "middling": lambda chance: chance.betavariate(3, 3),
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


def simulate(runs: int, narrower_than: float, spread: str, seed: int) -> Simulated:
    chance = random.Random(seed)
    draw = SPREADS[spread]
    covered = rollouts = 0
    for _ in range(runs * TASKS_OF_A_RUN):
        rate = draw(chance)
        passed, failed = until_known(rate, narrower_than, chance)
        interval = pass_rate_interval(passed, failed)
        covered += interval.low <= rate <= interval.high
        rollouts += passed + failed
    num_tasks = runs * TASKS_OF_A_RUN
    return Simulated(covered / num_tasks, rollouts / num_tasks, fixed_size(narrower_than))


def until_known(rate: float, narrower_than: float, chance: random.Random) -> tuple[int, int]:
    """How many rollouts of a task passed and failed until its interval was narrow enough."""
    passed = size = 0
    while size < MOST:
        passed += sum(chance.random() < rate for _ in range(AT_ONCE))
        size += AT_ONCE
        if width(passed, size - passed) <= narrower_than:
            break
    return passed, size - passed


def fixed_size(narrower_than: float) -> int:
    """The rollouts after which the interval of any task is narrow enough."""
    return next(
        size for size in range(AT_ONCE, MOST + 1, AT_ONCE) if width(size // 2, size - size // 2) <= narrower_than
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--narrower-than", type=float, default=0.3)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    print(f"{given.runs:,} runs of {TASKS_OF_A_RUN} tasks, until an interval is narrower than {given.narrower_than:g}")
    for spread in SPREADS:
        done = simulate(given.runs, given.narrower_than, spread, given.seed)
        print(
            f"{spread:>20}: {done.covered:.2%} covered, {done.rollouts:.1f} rollouts a task, "
            f"{1 - done.rollouts / done.fixed:.0%} fewer than {done.fixed}"
        )


if __name__ == "__main__":
    main()
