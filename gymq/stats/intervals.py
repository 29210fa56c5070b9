"""95 % confidence intervals for means over tasks."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

import msgspec

from gymq.stats.sums import ExactSum, Moments, exact_parts

CONFIDENCE = 0.95


class Interval(msgspec.Struct, frozen=True):
    """A 95 % confidence interval."""

    low: float
    high: float

    @property
    def width(self) -> float:
        return self.high - self.low


class Estimate(msgspec.Struct, frozen=True):
    """A mean over tasks with its 95 % confidence interval; None with too few tasks."""

    value: float
    interval: Interval | None
    tasks: int


class TaskMeans(msgspec.Struct, array_like=True):
    """The mean over tasks of one value for each task; the values are not kept."""

    total: ExactSum = msgspec.field(default_factory=ExactSum)
    spread: Moments = msgspec.field(default_factory=Moments)

    @property
    def num_tasks(self) -> int:
        return round(self.spread.weight)

    def add(self, value: float, num_tasks: int = 1) -> None:
        """Add the value of so many tasks."""
        for part in exact_parts([(value, num_tasks)]):
            self.total.add(part)
        self.spread.add(value, num_tasks)

    def merge(self, other: TaskMeans) -> None:
        """Add the tasks of other means."""
        self.total.merge(other.total)
        self.spread.merge(other.spread)

    def mean(self) -> float | None:
        """Return the mean; None without tasks."""
        return self.total.value() / self.num_tasks if self.num_tasks else None

    def estimate(self, bounds: tuple[float, float] | None = None, scale: float = 1.0) -> Estimate | None:
        """Return `scale` times the mean, with its interval; None without tasks.

        Args:
            bounds: smallest and largest result; the interval is clipped to them.
            scale: 100 for percentages of values from 0 to 1.
        """
        mean, num_tasks = self.mean(), self.num_tasks
        if mean is None:
            return None
        # Equal values may leave a rounding error below zero.
        variance = max(0.0, self.spread.squares) / (num_tasks - 1) if num_tasks > 1 else 0.0
        std_error = scale * math.sqrt(variance / num_tasks)
        return Estimate(scale * mean, mean_interval(scale * mean, std_error, num_tasks, bounds), num_tasks)


def mean_interval(
    mean: float, std_error: float, num_tasks: int, bounds: tuple[float, float] | None = None
) -> Interval | None:
    """Return Student's t interval of a mean over tasks, each task one independent observation (a cluster of rollouts).

    Source: Miller, "Adding Error Bars to Evals", arXiv:2411.00640; t instead of the normal distribution because
    there may be few tasks.

    Args:
        mean: the estimate.
        std_error: standard error of the mean over tasks.
        num_tasks: tasks that the mean is over.
        bounds: smallest and largest value the mean can have; the interval is clipped to them.

    Returns:
        None for fewer than two tasks, or if all values are equal: the deviation cannot be estimated then.
    """
    if num_tasks < 2 or std_error <= 1e-12 * abs(mean):  # so small an error is that of rounding
        return None
    reach = student_t(num_tasks - 1) * std_error
    low, high = bounds if bounds else (-math.inf, math.inf)
    return Interval(max(low, mean - reach), min(high, mean + reach))


@lru_cache(maxsize=4096)
def student_t(degrees_of_freedom: int) -> float:
    """Return the t that a Student-distributed value exceeds in absolute value with a probability of 5 %.

    Source: Abramowitz and Stegun, "Handbook of Mathematical Functions", 26.7.3 to 26.7.5.
    """
    if degrees_of_freedom > 200:  # the expansion is exact to 1e-11
        return _asymptotic(degrees_of_freedom)
    low, high = 1.0, 16.0
    while (middle := (low + high) / 2) not in (low, high):
        if _probability_within(middle, degrees_of_freedom) < CONFIDENCE:
            low = middle
        else:
            high = middle
    return middle


def _probability_within(t: float, degrees_of_freedom: int) -> float:
    """Return P(-t <= T <= t) of a Student-distributed T, by the finite series for whole degrees of freedom."""
    angle = math.atan(t / math.sqrt(degrees_of_freedom))
    cosine_squared = math.cos(angle) ** 2
    odd = degrees_of_freedom % 2
    term = math.cos(angle) if odd else 1.0
    total = 0.0
    for power in range(odd, degrees_of_freedom - 1, 2):
        total += term
        term *= cosine_squared * (power + 1) / (power + 2)
    series = math.sin(angle) * total
    return 2 / math.pi * (angle + series) if odd else series


def _asymptotic(degrees_of_freedom: int) -> float:
    x = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    terms = (
        x,
        (x**3 + x) / 4,
        (5 * x**5 + 16 * x**3 + 3 * x) / 96,
        (3 * x**7 + 19 * x**5 + 17 * x**3 - 15 * x) / 384,
        (79 * x**9 + 776 * x**7 + 1482 * x**5 - 1920 * x**3 - 945 * x) / 92160,
    )
    return math.fsum(term / degrees_of_freedom**power for power, term in enumerate(terms))
