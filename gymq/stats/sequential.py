"""Intervals of pass rates that keep their coverage if results determine the number of rollouts.

The coverage of a confidence interval holds for a number of rollouts that is fixed in advance. If sampling stops once
the interval is narrow, the coverage is lower: extreme results look certain by chance and end the sampling early.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

from gymq.stats.intervals import CONFIDENCE, Interval

_Z = NormalDist().inv_cdf((1.0 + CONFIDENCE) / 2)
_ADDED = 1.0  # rollouts that passed, and as many that did not, which pull an interval to the middle
_ADDED_FOR_EACH = 1 / 8  # of them, for each result after the first of the kind that is rare


@lru_cache(maxsize=65536)
def pass_rate_interval(passed: int, failed: int) -> Interval:
    """Return the 95 % interval of a task's pass rate, also if sampling stops when this interval is narrow enough.

    It is the score interval of Wilson (1927) after one passed and one failed rollout were added, which make up for
    stopping early at extreme results. Next to 0 and 1, where adding would move a limit past the rate, a limit is
    calculated with fewer. Sources: Frey, "Fixed-width sequential confidence intervals for a proportion", The American
    Statistician 64 (2010), for the addition; Brown, Cai and DasGupta, "Interval estimation for a binomial proportion",
    Statistical Science 16 (2001), section 4, for limits of their own near the ends. How much is added was chosen by
    calculating the coverage over all ways in which sampling can end: for widths of 0.1 to 0.3 and 4 to 8 rollouts at a
    time it is 94.4 to 96 %, averaged over rates that are within 0.05 of any rate.

    Args:
        passed: rollouts that passed.
        failed: rollouts that have a verdict and did not pass.
    """
    return Interval(_lower_limit(passed, failed), 1.0 - _lower_limit(failed, passed))


def _lower_limit(passed: int, failed: int) -> float:
    if not passed:
        return 0.0
    added = min(_ADDED, _ADDED_FOR_EACH * (passed - 1))
    size = passed + failed + 2 * added
    rate = (passed + added) / size
    middle = rate + _Z**2 / (2 * size)
    reach = _Z * math.sqrt(rate * (1.0 - rate) / size + (_Z / (2 * size)) ** 2)
    return (middle - reach) / (1.0 + _Z**2 / size)


def width(passed: int, failed: int) -> float:
    """Return how wide the interval of a task's pass rate is."""
    interval = pass_rate_interval(passed, failed)
    return interval.high - interval.low


def expected_variance(passed: int, failed: int) -> float:
    """Return the expected variance of the rewards of the next rollouts, between 0 and 1/4.

    It is the mean of p * (1 - p) over Beta(1 + passed, 1 + failed). A group whose rewards do not vary teaches nothing.
    """
    a, b = 1 + passed, 1 + failed
    return a * b / ((a + b) * (a + b + 1))
