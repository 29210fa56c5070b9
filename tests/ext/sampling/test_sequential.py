"""Intervals of pass rates hold what they promise, also when they decide how many rollouts there are."""

from statistics import NormalDist

import numpy as np
import pytest

from benchmarks.sequential import GRADES, SPREADS, TASKS_OF_A_RUN, simulate, simulate_graded
from gymq.ext.sampling.sequential import expected_variance, mean_reward_interval, pass_rate_interval
from gymq.stats.intervals import Interval

ZERO_TO_ONE = Interval(0.0, 1.0)
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
    assert pass_rate_interval(2, 2).width > pass_rate_interval(8, 8).width > pass_rate_interval(200, 200).width
    assert pass_rate_interval(0, 16).width < pass_rate_interval(8, 8).width


def test_rewards_are_expected_to_vary_most_where_half_pass() -> None:
    def expected(passed: int, failed: int) -> float:
        return expected_variance([1.0] * passed + [0.0] * failed, ZERO_TO_ONE)

    assert expected(0, 0) == pytest.approx(1 / 6)
    assert expected(3, 8) == pytest.approx(4 * 9 / (13 * 14))  # of Beta(4, 9)
    assert expected(50, 50) > expected(90, 10) > expected(100, 0) > 0
    assert expected(5, 5) < 0.25


def test_graded_rewards_are_expected_to_vary_as_they_did() -> None:
    spread, alike = [0.1, 0.9] * 20, [0.3] * 40
    assert expected_variance(spread, ZERO_TO_ONE) > expected_variance(alike, ZERO_TO_ONE)
    in_tens = expected_variance([10 * reward for reward in spread], Interval(0.0, 10.0))
    assert in_tens == pytest.approx(100 * expected_variance(spread, ZERO_TO_ONE))


def test_a_mean_reward_is_known_sooner_if_rewards_are_alike_but_not_at_once() -> None:
    assert mean_reward_interval([], ZERO_TO_ONE) == ZERO_TO_ONE
    assert mean_reward_interval([0.5] * 4, ZERO_TO_ONE).width > 0.3
    assert (
        mean_reward_interval([0.5] * 40, ZERO_TO_ONE).width < mean_reward_interval([0.1, 0.9] * 20, ZERO_TO_ONE).width
    )


@pytest.mark.parametrize("grades", GRADES)
def test_intervals_of_graded_rewards_cover_at_least_95_percent(grades: str) -> None:
    done = simulate_graded(GRADES[grades], 4_000, 0.3, 8, np.random.default_rng(0))
    assert done.covered > 0.94


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
