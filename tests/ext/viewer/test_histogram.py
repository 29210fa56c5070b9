import itertools
import sys

from gymq.ext.viewer.histogram import MOST_VALUES, NUM_BINS, Bar, histogram


def test_few_values_have_a_bar_each():
    assert histogram({1.0: 3, 0.0: 2}) == [Bar(0.0, 0.0, 2), Bar(1.0, 1.0, 3)]


def test_many_values_share_bars_of_one_width_and_none_is_lost():
    counts = {number / 7: number + 1 for number in range(100)}
    bars = histogram(counts)
    assert len(bars) == NUM_BINS
    assert sum(bar.count for bar in bars) == sum(counts.values())
    assert bars[0].low == 0.0
    assert all(left.high <= right.low + 1e-9 for left, right in itertools.pairwise(bars))


def test_the_largest_numbers_there_are_have_bars_too():
    most = sys.float_info.max
    counts = {most * (number / MOST_VALUES - 1) for number in range(2 * MOST_VALUES + 1)}
    assert sum(bar.count for bar in histogram(dict.fromkeys(counts, 1))) == len(counts)


def test_no_values_have_no_bars():
    assert histogram({}) == []
