"""Intervals of pass rates that stay right when the results decide how many rollouts there are.

A confidence interval promises its coverage for a number of rollouts that is fixed in advance. If sampling stops as soon
as the interval is narrow, it covers less. A credible interval depends on the results alone, whatever made them end.
"""

from __future__ import annotations

import math
from functools import lru_cache

from gymq.stats.intervals import CONFIDENCE, Interval

_PRECISION = 1e-9


@lru_cache(maxsize=65536)
def pass_rate_interval(passed: int, failed: int) -> Interval:
    """Return the 95 % credible interval of a task's pass rate, if every pass rate was equally likely before.

    It ends at 0 if no rollout passed, and at 1 if none failed; otherwise the rate is as likely below it as above it.
    Over tasks whose pass rates are spread evenly, 95 % of the intervals contain the rate. Source: Gelman et al.,
    "Bayesian Data Analysis", section 2.4, where the posterior of a uniform prior is Beta(1 + passed, 1 + failed).

    Args:
        passed: rollouts that passed.
        failed: rollouts that have a verdict and did not pass.
    """
    outside = 1.0 - CONFIDENCE
    if passed == failed == 0:
        return Interval(outside / 2, 1.0 - outside / 2)
    if not passed:
        return Interval(0.0, _quantile(CONFIDENCE, passed, failed))
    if not failed:
        return Interval(_quantile(outside, passed, failed), 1.0)
    return Interval(_quantile(outside / 2, passed, failed), _quantile(1.0 - outside / 2, passed, failed))


def width(passed: int, failed: int) -> float:
    """Return how wide the interval of a task's pass rate is."""
    interval = pass_rate_interval(passed, failed)
    return interval.high - interval.low


def expected_variance(passed: int, failed: int) -> float:
    """Return the variance that the rewards of the next rollouts are expected to have, between 0 and 1/4.

    It is the mean of p * (1 - p) over Beta(1 + passed, 1 + failed). A group whose rewards do not vary teaches nothing.
    """
    a, b = 1 + passed, 1 + failed
    return a * b / ((a + b) * (a + b + 1))


def _quantile(probability: float, passed: int, failed: int) -> float:
    low, high = 0.0, 1.0
    while high - low > _PRECISION:
        middle = (low + high) / 2
        if _probability_below(middle, passed, failed) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _probability_below(rate: float, passed: int, failed: int) -> float:
    """Return the distribution function of Beta(1 + passed, 1 + failed), as a tail of a binomial distribution.

    Source: Abramowitz and Stegun, "Handbook of Mathematical Functions", 26.5.24.
    """
    if not 0.0 < rate < 1.0:
        return float(rate >= 1.0)
    trials = passed + failed + 1
    log_rate, log_rest = math.log(rate), math.log1p(-rate)
    log_all = math.lgamma(trials + 1)
    return math.fsum(
        math.exp(
            log_all
            - math.lgamma(count + 1)
            - math.lgamma(trials - count + 1)
            + count * log_rate
            + (trials - count) * log_rest
        )
        for count in range(passed + 1, trials + 1)
    )
