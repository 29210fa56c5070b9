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
    """Return the bars for some values.

    Args:
        counts: how often each value occurs; all finite.
    """
    values = sorted(counts)
    if len(values) <= MOST_VALUES:
        return [Bar(value, value, counts[value]) for value in values]
    low, high = values[0], values[-1]
    half = high / 2 - low / 2  # of the whole width, which may be larger than a number can be
    if half == 0:
        return [Bar(low, high, sum(counts.values()))]
    bins = [0] * NUM_BINS
    for value in values:
        bins[min(NUM_BINS - 1, int((value / 2 - low / 2) / half * NUM_BINS))] += counts[value]
    width = half / NUM_BINS * 2
    return [Bar(low + number * width, low + (number + 1) * width, count) for number, count in enumerate(bins)]
