"""Statistics of a numeric field over rollouts that are added one by one and not kept."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from gymq.data.rows import ROLLOUT_INDEX, TASK_INDEX
from gymq.stats.sums import ExactSum, Moments, exact_parts, is_usable

MAX_DISTINCT_VALUES = 4096
"""Largest number of distinct values that are counted; with more, the median is unknown during the run."""


class FieldStats(msgspec.Struct, frozen=True):
    """Statistics of a numeric field over rollouts that have it."""

    count: int
    mean: float
    max: float
    min: float
    median: float | None  # None: more than `MAX_DISTINCT_VALUES` different values
    std: float | None  # with n - 1 in the denominator; None for a single value among several rollouts


class FieldTotals(msgspec.Struct):
    """Counts of each value of a field; with too many distinct values only sums are kept."""

    count: int = 0
    low: float = math.inf
    high: float = -math.inf
    total: ExactSum = msgspec.field(default_factory=ExactSum)  # this and the next: once `values` is None
    moments: Moments = msgspec.field(default_factory=Moments)
    values: dict[float, int] | None = {}

    def add(self, value: float, max_distinct: int | None = MAX_DISTINCT_VALUES) -> None:
        """Add a value; `max_distinct` is the number of different values that are counted, None for all."""
        self.count += 1
        self.low, self.high = min(self.low, value), max(self.high, value)
        if self.values is None:
            self.total.add(value)
            self.moments.add(value)
            return
        self.values[value] = self.values.get(value, 0) + 1
        if max_distinct is not None and len(self.values) > max_distinct:
            self._keep_sums(self.values)

    def merge(self, other: FieldTotals) -> None:
        """Add the values of other totals."""
        self.count += other.count
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)
        if self.values is not None and other.values is not None:
            for value, count in other.values.items():
                self.values[value] = self.values.get(value, 0) + count
            if len(self.values) > MAX_DISTINCT_VALUES:
                self._keep_sums(self.values)
            return
        if self.values is not None:
            self._keep_sums(self.values)
        if other.values is None:
            self.total.merge(other.total)
            self.moments.merge(other.moments)
            return
        for part in exact_parts(other.values.items()):
            self.total.add(part)
        for value, count in other.values.items():
            self.moments.add(value, count)

    def sum(self) -> float:
        """Return the sum of all values, correctly rounded while the values are counted."""
        if self.values is None:
            return self.total.value()
        return math.fsum(exact_parts(self.values.items()))

    def stats(self, *, single: bool) -> FieldStats:
        """Return the statistics of at least one value.

        Args:
            single: whether the group has only one rollout; its deviation is reported as 0.
        """
        mean = self.sum() / self.count
        return FieldStats(self.count, mean, self.high, self.low, self._median(), 0.0 if single else self._std(mean))

    def _keep_sums(self, values: Mapping[float, int]) -> None:
        self.total, self.moments, self.values = ExactSum(list(exact_parts(values.items()))), Moments(), None
        for value, count in values.items():
            self.moments.add(value, count)

    def _std(self, mean: float) -> float | None:
        if self.count < 2:
            return None
        squares = self.moments.squares
        if self.values is not None:
            squares = math.fsum(exact_parts(((value - mean) ** 2, count) for value, count in self.values.items()))
        return math.sqrt(max(0.0, squares) / (self.count - 1))

    def _median(self) -> float | None:
        if self.values is None:
            return None
        left, right = (self.count - 1) // 2, self.count // 2
        seen, lower = 0, None
        for value in sorted(self.values):
            seen += self.values[value]
            if lower is None and seen > left:
                lower = value
            if lower is not None and seen > right:
                return (lower + value) / 2
        return None


def numeric_fields(fields: Mapping[str, Any]) -> dict[str, float]:
    """Return the fields that are profiled: numbers, and booleans as 0 and 1.

    Indices are left out, as is what cannot enter statistics: NaN, infinity, and what would make them overflow.
    """
    return {
        name: int(value) if isinstance(value, bool) else value
        for name, value in fields.items()
        if isinstance(value, int | float) and name not in (TASK_INDEX, ROLLOUT_INDEX) and is_usable(value)
    }
