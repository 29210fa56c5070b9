"""Intervals of pass rates hold what they promise, also when they decide how many rollouts there are."""

import math

import pytest

from benchmarks.sequential import SPREADS, simulate
from gymq.stats.sequential import expected_variance, pass_rate_interval, width


@pytest.mark.parametrize(
    ("passed", "failed", "low", "high"),
    [  # quantiles of Beta(1 + passed, 1 + failed), where they have a closed form
        (0, 0, 0.025, 0.975),
        (0, 9, 0.0, 1 - 0.05 ** (1 / 10)),
        (9, 0, 0.05 ** (1 / 10), 1.0),
    ],
)
def test_an_interval_has_the_bounds_that_its_formula_gives(passed: int, failed: int, low: float, high: float) -> None:
    interval = pass_rate_interval(passed, failed)
    assert interval.low == pytest.approx(low, abs=1e-8)
    assert interval.high == pytest.approx(high, abs=1e-8)


@pytest.mark.parametrize(("passed", "failed"), [(1, 1), (3, 17), (40, 60), (1, 300)])
def test_between_the_bounds_is_95_percent_of_the_density(passed: int, failed: int) -> None:
    interval = pass_rate_interval(passed, failed)
    steps = 20_000
    log_scale = math.lgamma(passed + failed + 2) - math.lgamma(passed + 1) - math.lgamma(failed + 1)

    def mass(low: float, high: float) -> float:
        at = [low + (high - low) * (step + 0.5) / steps for step in range(steps)]
        density = (math.exp(log_scale + passed * math.log(p) + failed * math.log1p(-p)) for p in at)
        return math.fsum(density) * (high - low) / steps

    assert mass(interval.low, interval.high) == pytest.approx(0.95, abs=1e-5)
    assert mass(1e-12, interval.low) == pytest.approx(0.025, abs=1e-5)


def test_an_interval_mirrors_itself_and_gets_narrower() -> None:
    one, other = pass_rate_interval(3, 11), pass_rate_interval(11, 3)
    assert one.low == pytest.approx(1 - other.high, abs=1e-8)
    assert width(2, 2) > width(8, 8) > width(200, 200)
    assert width(0, 16) < width(8, 8)


def test_rewards_are_expected_to_vary_most_where_half_pass() -> None:
    assert expected_variance(0, 0) == pytest.approx(1 / 6)
    assert expected_variance(50, 50) > expected_variance(90, 10) > expected_variance(100, 0) > 0
    assert expected_variance(5, 5) < 0.25


def test_intervals_cover_95_percent_although_they_end_the_sampling() -> None:
    done = simulate(runs=1000, narrower_than=0.3, spread="even", seed=1)
    assert done.covered == pytest.approx(0.95, abs=0.01)
    assert done.rollouts < 0.7 * done.fixed


@pytest.mark.parametrize("spread", SPREADS)
def test_other_spreads_of_difficulty_cost_little_of_the_coverage(spread: str) -> None:
    assert simulate(runs=400, narrower_than=0.3, spread=spread, seed=2).covered > 0.92
