import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymq.stats.field_totals import MAX_DISTINCT_VALUES, FieldTotals
from gymq.stats.sums import ExactSum, Moments, exact_parts, is_usable

VALUES = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40)


@given(st.floats(-1e15, 1e15), st.integers(0, 3000))
def test_parts_have_the_exact_sum_of_all_repetitions(value: float, count: int) -> None:
    assert math.fsum(exact_parts([(value, count), (0.1, 3)])) == math.fsum([value] * count + [0.1] * 3)


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


@given(VALUES.flatmap(lambda values: st.lists(st.sampled_from(values), min_size=1, max_size=60)))
def test_a_field_has_the_statistics_of_its_values(values: list[float]) -> None:
    totals = FieldTotals()
    for value in values:
        totals.add(value)
    stats = totals.stats(single=False)
    assert (stats.count, stats.max, stats.min) == (len(values), max(values), min(values))
    assert stats.median == statistics.median(values)
    mean = math.fsum(values) / len(values)
    assert stats.mean == mean
    if len(values) > 1:
        assert stats.std == math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
    else:
        assert stats.std is None


def test_the_median_is_left_out_when_there_are_too_many_different_values() -> None:
    totals, exact = FieldTotals(), FieldTotals()
    values = [float(number) for number in range(MAX_DISTINCT_VALUES)]
    for value in values:
        totals.add(value)
    assert totals.stats(single=False).median == statistics.median(values)
    values += [-1.0, -1.0, 0.5]
    for value in values[-3:]:
        totals.add(value)
    stats = totals.stats(single=False)
    assert totals.values is None
    assert (stats.median, stats.count) == (None, len(values))
    assert stats.mean == pytest.approx(statistics.fmean(values))
    assert stats.std == pytest.approx(statistics.stdev(values))
    for value in values:
        exact.add(value, max_distinct=None)
    assert exact.stats(single=False).median == statistics.median(values)
