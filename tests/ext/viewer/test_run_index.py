"""Two runs are compared task by task."""

import math

import pytest

from gymq.ext.viewer.run_index import paired_difference
from gymq.stats.intervals import student_t


def test_a_paired_difference_has_the_interval_of_the_differences() -> None:
    found = paired_difference([0.5, 0.0, 1.0, 0.5])
    assert found is not None
    assert found.interval is not None
    reach = student_t(3) * math.sqrt(1 / 6) / 2  # their variance is 1/6
    assert (found.value, found.tasks) == (0.5, 4)
    assert (found.interval.low, found.interval.high) == pytest.approx((0.5 - reach, 0.5 + reach))


def test_a_paired_difference_needs_tasks_that_differ_for_an_interval() -> None:
    assert paired_difference([]) is None
    for differences in ([0.25], [0.25, 0.25]):
        found = paired_difference(differences)
        assert found is not None
        assert (found.value, found.interval) == (0.25, None)
