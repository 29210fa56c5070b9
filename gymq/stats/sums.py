"""Exact sums, weighted means and deviations of numbers that are not kept."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import msgspec

MAX_MAGNITUDE = 1e100
"""Numbers beyond it are refused, so that no square and no sum of numbers overflows."""


def is_usable(value: float) -> bool:
    """Return whether a number can enter statistics: finite and not beyond `MAX_MAGNITUDE`."""
    return -MAX_MAGNITUDE <= value <= MAX_MAGNITUDE


def exact_parts(counted: Iterable[tuple[float, int]]) -> Iterator[float]:
    """Yield few floats with the same exact sum as all values, each multiplied by its count."""
    for value, count in counted:
        while count:
            power = count & -count
            yield value * power  # exact, as is every product with a power of two
            count ^= power


class ExactSum(msgspec.Struct, array_like=True):
    """A sum of floats in constant memory that does not depend on their order.

    Collected values are periodically replaced by their rounded sum and its rounding error.
    """

    parts: list[float] = []

    def add(self, value: float) -> None:
        """Add a value."""
        self.parts.append(value)
        if len(self.parts) >= 256:
            total = math.fsum(self.parts)
            self.parts = [total, math.fsum([*self.parts, -total])]

    def merge(self, other: ExactSum) -> None:
        """Add another sum."""
        for part in other.parts:
            self.add(part)

    def value(self) -> float:
        """Return the sum so far."""
        return math.fsum(self.parts)


class Moments(msgspec.Struct, array_like=True):
    """Weighted mean and sum of squared deviations of values that are not kept.

    Source: West, "Updating mean and variance estimates: an improved method", Communications of the ACM 22(9), 1979.
    """

    weight: float = 0.0
    mean: float = 0.0
    squares: float = 0.0  # sum of weight * (value - mean)²

    def add(self, value: float, weight: float = 1.0) -> None:
        """Add a value that counts `weight` times."""
        self.weight += weight
        away = value - self.mean
        self.mean += away * weight / self.weight
        self.squares += weight * away * (value - self.mean)

    def merge(self, other: Moments) -> None:
        """Add the values of other moments."""
        if other.weight:
            self.add(other.mean, other.weight)
            self.squares += other.squares
