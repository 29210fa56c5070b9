"""Rewards as the bars of a histogram."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

MOST_VALUES = 12  # different rewards that get a bar each
NUM_BINS = 20  # of equal width, where there are more


class Bar(msgspec.Struct, frozen=True):
    low: float
    high: float  # the same as `low`: the bar is of one value
    count: int


def histogram(counts: Mapping[float, int]) -> list[Bar]:
    """The bars of some values.

    Args:
        counts: how often each value came; all finite.
    """
    values = sorted(counts)
    if len(values) <= MOST_VALUES:
        return [Bar(value, value, counts[value]) for value in values]
    low, high = values[0], values[-1]
    width = high / NUM_BINS - low / NUM_BINS  # in this order it cannot overflow
    bins = [0] * NUM_BINS
    for value in values:
        bins[min(NUM_BINS - 1, int((value - low) / width)) if value < high else -1] += counts[value]
    return [Bar(low + number * width, low + (number + 1) * width, count) for number, count in enumerate(bins)]
