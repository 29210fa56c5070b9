"""Means and deviations: of values at hand, and of values that come one by one and are not kept."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

MAX_MAGNITUDE = 1e100
"""Numbers beyond it are refused, so that no square and no sum of numbers overflows."""

_COLLAPSE_AT = 256


def is_usable(value: float) -> bool:
    """Whether statistics can be made of a number: finite and not beyond `MAX_MAGNITUDE`."""
    return -MAX_MAGNITUDE <= value <= MAX_MAGNITUDE


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean of at least one value."""
    return math.fsum(values) / len(values)


def median(ordered: Sequence[float]) -> float:
    """Median of at least one value in ascending order: of an even number, the mean of the two in the middle."""
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def sample_std(values: Sequence[float]) -> float | None:
    """Standard deviation with n - 1 in the denominator; None for fewer than two values."""
    if len(values) < 2:
        return None
    centre = mean(values)
    return math.sqrt(math.fsum((value - centre) ** 2 for value in values) / (len(values) - 1))


class ExactSum(msgspec.Struct, array_like=True):
    """A sum of floats in constant memory that does not depend on their order.

    Values are collected and now and then collapsed into their rounded sum and its rounding error.
    """

    parts: list[float] = []

    def add(self, value: float) -> None:
        """Add a value."""
        self.parts.append(value)
        if len(self.parts) >= _COLLAPSE_AT:
            total = math.fsum(self.parts)
            self.parts = [total, math.fsum([*self.parts, -total])]

    def value(self) -> float:
        """The sum so far."""
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
        """Add all values of another.

        Source: Chan, Golub, LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances", 1979.
        """
        if other.weight:
            total = self.weight + other.weight
            away = other.mean - self.mean
            self.squares += other.squares + away * away * self.weight * other.weight / total
            self.mean += away * other.weight / total
            self.weight = total
