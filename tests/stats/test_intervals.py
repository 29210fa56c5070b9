import pytest

from gymq.stats.intervals import mean_interval, student_t


# Two-sided 5 % points of Student's t as printed in statistical tables, to their last digit.
@pytest.mark.parametrize(
    ("degrees_of_freedom", "t"),
    [
        (1, 12.706),
        (2, 4.303),
        (3, 3.182),
        (4, 2.776),
        (5, 2.571),
        (9, 2.262),
        (30, 2.042),
        (60, 2.000),
        (120, 1.980),
        (10**6, 1.960),
    ],
)
def test_student_t_is_that_of_the_tables(degrees_of_freedom: int, t: float) -> None:
    assert student_t(degrees_of_freedom) == pytest.approx(t, abs=5.1e-4)


def test_student_t_is_exact_where_it_has_a_closed_form() -> None:
    assert student_t(2) == pytest.approx(0.95 * (2 / (1 - 0.95**2)) ** 0.5, rel=1e-12)


def test_the_series_and_the_expansion_meet() -> None:
    steps = [student_t(degrees) - student_t(degrees + 1) for degrees in (199, 200, 201)]
    assert steps == sorted(steps, reverse=True)
    assert steps[0] == pytest.approx(steps[2], rel=0.03)


def test_an_interval_reaches_t_standard_errors_to_both_sides() -> None:
    interval = mean_interval(10.0, 2.0, 3)
    assert interval is not None
    assert interval.low == pytest.approx(10 - 2 * 4.302653, abs=1e-5)
    assert interval.high == pytest.approx(10 + 2 * 4.302653, abs=1e-5)


def test_an_interval_is_clipped_to_the_range_of_its_metric() -> None:
    interval = mean_interval(95.0, 10.0, 4, (0.0, 100.0))
    assert interval is not None
    assert interval.high == 100.0
    assert 0.0 < interval.low < 95.0


@pytest.mark.parametrize(("std_error", "num_tasks"), [(1.0, 1), (1.0, 0), (0.0, 50)])
def test_there_is_no_interval_where_tasks_say_nothing_of_their_spread(std_error: float, num_tasks: int) -> None:
    assert mean_interval(1.0, std_error, num_tasks) is None
