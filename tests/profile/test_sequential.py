"""Intervals of pass rates hold what they promise, also when they decide how many rollouts there are."""

from statistics import NormalDist

import numpy as np
import pytest

from benchmarks.sequential import SPREADS, TASKS_OF_A_RUN, simulate
from gymq.stats.sequential import expected_variance, pass_rate_interval, width

Z = NormalDist().inv_cdf(0.975)
RUNS = 10_000


def test_of_a_single_kind_of_result_one_limit_is_the_end() -> None:
    assert (pass_rate_interval(0, 0).low, pass_rate_interval(0, 0).high) == (0.0, 1.0)
    assert pass_rate_interval(0, 20).low == 0.0
    assert pass_rate_interval(20, 0).high == 1.0


@pytest.mark.parametrize(
    ("passed", "failed", "added"),
    [(1, 12, 0.0), (3, 20, 0.25), (9, 9, 1.0), (30, 70, 1.0)],
)
def test_a_limit_is_the_rate_that_is_so_many_deviations_from_the_results(
    passed: int, failed: int, added: float
) -> None:
    low = pass_rate_interval(passed, failed).low
    size = passed + failed + 2 * added
    deviation = (low * (1.0 - low) / size) ** 0.5
    assert (passed + added) / size - low == pytest.approx(Z * deviation)


def test_an_interval_mirrors_itself_and_gets_narrower() -> None:
    one, other = pass_rate_interval(3, 11), pass_rate_interval(11, 3)
    assert one.low == pytest.approx(1 - other.high)
    assert width(2, 2) > width(8, 8) > width(200, 200)
    assert width(0, 16) < width(8, 8)


def test_rewards_are_expected_to_vary_most_where_half_pass() -> None:
    assert expected_variance(0, 0) == pytest.approx(1 / 6)
    assert expected_variance(50, 50) > expected_variance(90, 10) > expected_variance(100, 0) > 0
    assert expected_variance(5, 5) < 0.25


@pytest.mark.parametrize(
    ("narrower_than", "at_once"),
    [(0.3, 8), pytest.param(0.3, 4, marks=pytest.mark.nightly), pytest.param(0.2, 8, marks=pytest.mark.nightly)],
)
@pytest.mark.parametrize("spread", SPREADS)
def test_intervals_cover_95_percent_although_they_end_the_sampling(
    spread: str, narrower_than: float, at_once: int
) -> None:
    chance = np.random.default_rng(0)
    rates = SPREADS[spread](chance, RUNS * TASKS_OF_A_RUN)
    done = simulate(rates, narrower_than, at_once, chance)
    assert done.covered == pytest.approx(0.95, abs=0.01)
    assert done.rollouts < done.fixed
