import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymq.member_totals import MAX_DISTINCT_VALUES, MemberTotals
from gymq.moments import ExactSum, Moments, is_usable, mean, median, sample_std

VALUES = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40)


@given(VALUES)
def test_mean_median_and_deviation_are_those_of_the_library(values: list[float]) -> None:
    assert mean(values) == pytest.approx(statistics.fmean(values), rel=1e-12, abs=1e-9)
    assert median(sorted(values)) == statistics.median(values)
    if len(values) > 1:
        assert sample_std(values) == pytest.approx(statistics.stdev(values), rel=1e-9, abs=1e-9)
    else:
        assert sample_std(values) is None


@given(st.lists(st.floats(-1e15, 1e15), max_size=700), st.randoms(use_true_random=False))
def test_a_sum_does_not_depend_on_the_order(values: list[float], random) -> None:
    shuffled = random.sample(values, len(values))
    first, second = ExactSum(), ExactSum()
    for value in values:
        first.add(value)
    for value in shuffled:
        second.add(value)
    assert first.value() == pytest.approx(math.fsum(values), rel=1e-15, abs=1e-12)
    assert second.value() == pytest.approx(first.value(), rel=1e-15, abs=1e-12)


def test_a_sum_keeps_what_plain_addition_loses_in_constant_memory() -> None:
    total = ExactSum()
    for _ in range(10_000):
        for value in (1e16, 1.0, -1e16):
            total.add(value)
    assert total.value() == 10_000
    assert len(total.parts) <= 256


@given(VALUES, VALUES)
def test_merged_moments_are_those_of_all_values(left: list[float], right: list[float]) -> None:
    merged, other, together = Moments(), Moments(), Moments()
    for value in left:
        merged.add(value)
        together.add(value)
    for value in right:
        other.add(value)
        together.add(value)
    merged.merge(other)
    assert merged.weight == together.weight
    assert merged.mean == pytest.approx(together.mean, rel=1e-9, abs=1e-6)
    assert merged.squares == pytest.approx(together.squares, rel=1e-9, abs=1e-3)


def test_a_weight_counts_like_repetition() -> None:
    weighted, repeated = Moments(), Moments()
    weighted.add(2.0, 3)
    weighted.add(5.0)
    for value in (2.0, 2.0, 2.0, 5.0):
        repeated.add(value)
    assert (weighted.weight, weighted.mean) == (repeated.weight, repeated.mean)
    assert weighted.squares == pytest.approx(repeated.squares)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e101, 10**400])
def test_no_statistics_are_made_of_numbers_that_would_spoil_them(value: float) -> None:
    assert not is_usable(value)


@given(VALUES)
def test_a_member_has_the_statistics_of_its_values(values: list[float]) -> None:
    member = MemberTotals()
    for value in values:
        member.add(value)
    stats = member.stats(single=False)
    assert (stats.count, stats.max, stats.min) == (len(values), max(values), min(values))
    assert stats.median == statistics.median(values)
    assert stats.mean == mean(values)
    assert (stats.std or 0.0) == pytest.approx(sample_std(values) or 0.0, rel=1e-9, abs=1e-9)
    assert (stats.std is None) == (len(values) == 1)


def test_the_median_is_left_out_when_there_are_too_many_different_values() -> None:
    member = MemberTotals()
    values = [float(number) for number in range(MAX_DISTINCT_VALUES)]
    for value in values:
        member.add(value)
    assert member.stats(single=False).median == statistics.median(values)
    member.add(-1.0)
    stats = member.stats(single=False)
    assert stats.median is None
    assert stats.std == pytest.approx(statistics.stdev([*values, -1.0]))
