"""Scores where a scorer of the library gives full credit to an answer that says nothing."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction

_NO_NUMBER = re.compile(r"(?<![^\W_])(?:nan|inf|infinity)(?=[ij]?(?![^\W_]))", re.IGNORECASE)

ABSOLUTE_TOLERANCE = 1e-4  # the library's own for probabilities
RELATIVE_TOLERANCE = 0.01  # so that 0 is not close to a small probability


def is_no_number(answer: str, expected: str | None) -> bool:
    """Return whether an answer names NaN or an infinity where the expected one does not.

    Scorers compare distances, and a comparison with NaN can come out in favour of the answer.
    """
    return _NO_NUMBER.search(answer) is not None and _NO_NUMBER.search(expected or "") is None


def halting_score(answer: str, expected: str) -> float:
    """Return 1 for the expected word, True or False, in any case. The library takes any text for True."""
    return float(answer.strip().rstrip(".").casefold() == expected.strip().casefold())


def probability_score(answer: str, expected: str) -> float:
    """Return 1 for the expected probability. The library also pays for each leading digit, so that 0 always wins.

    Raises:
        ValueError, ZeroDivisionError: the answer is not a number.
    """
    given, wanted = (float(Fraction(text.replace(",", ""))) for text in (answer, expected))
    return float(abs(given - wanted) <= min(ABSOLUTE_TOLERANCE, RELATIVE_TOLERANCE * abs(wanted)))


SCORERS: dict[str, Callable[[str, str], float]] = {
    "coin_flip": probability_score,
    "game_of_life_halting": halting_score,
}
"""Tasks whose scorer is replaced; each gets the answer and the expected one."""
