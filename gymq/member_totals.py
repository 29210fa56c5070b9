"""Statistics of one numeric member of results that come one by one and are not kept."""

from __future__ import annotations

import math

import msgspec

from gymq.moments import ExactSum, Moments

MAX_DISTINCT_VALUES = 4096
"""Different values of a member that are counted. With more of them its median is not known while the run runs."""


class MemberStats(msgspec.Struct, frozen=True):
    """Statistics of a numeric member over rollouts that have it."""

    count: int
    mean: float
    max: float
    min: float
    median: float | None  # None: more than `MAX_DISTINCT_VALUES` different values
    std: float | None  # with n - 1 in the denominator; None for a single value among several rollouts


class MemberTotals(msgspec.Struct):
    """What is known of a member's values."""

    count: int = 0
    low: float = math.inf
    high: float = -math.inf
    total: ExactSum = msgspec.field(default_factory=ExactSum)
    moments: Moments = msgspec.field(default_factory=Moments)
    values: dict[float, int] | None = {}  # how often each value came; None once there were too many

    def add(self, value: float) -> None:
        """Add a value."""
        self.count += 1
        self.low, self.high = min(self.low, value), max(self.high, value)
        self.total.add(value)
        self.moments.add(value)
        if self.values is not None:
            self.values[value] = self.values.get(value, 0) + 1
            if len(self.values) > MAX_DISTINCT_VALUES:
                self.values = None

    def stats(self, *, single: bool) -> MemberStats:
        """The statistics of at least one value.

        Args:
            single: whether the group has one rollout only, whose deviation is written as 0.
        """
        mean = self.total.value() / self.count
        return MemberStats(self.count, mean, self.high, self.low, self._median(), 0.0 if single else self._std(mean))

    def _std(self, mean: float) -> float | None:
        if self.count < 2:
            return None
        squares = self.moments.squares
        if self.values is not None:
            squares = math.fsum(count * (value - mean) ** 2 for value, count in self.values.items())
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
