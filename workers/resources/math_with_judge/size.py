"""Calculations that no answer needs: towers of powers, huge factorials, long sums, integrals, which take for ever."""

from __future__ import annotations

import math
import re

MOST_BITS = 1_000_000  # of a power that is calculated

_OPENS = r"[{ ]{0,2}(?:\\left)?[(]?"
_TOWER = re.compile(rf"(?<![\d.])\d++(?: ?\^ ?{_OPENS} ?-?\d++)+")
_NUMBER = re.compile(r"\d+")
_LONG = re.compile(
    r"\d{6}[)} ]?!|![)}]{1,3} ?!|\\[dt]?binom ?\{ ?\d{6}|\\(?:sum|prod)(?![a-z])[^$]{0,60}\^ ?\{? ?\d{5}"
    r"|[a-z][^()]{0,40}\) ?\^ ?\{? ?\d{3}|\\(?:o|i{0,3})int(?![a-z])"
)


def end_of_huge(text: str) -> int:
    """Return where the last calculation ends that takes too long; 0 without one."""
    towers = [found.end() for found in _TOWER.finditer(text) if _bits(found[0]) > MOST_BITS]
    return max([0, *towers, *(found.end() for found in _LONG.finditer(text))])


def _bits(tower: str) -> float:
    base, *exponents = [float(number) for number in _NUMBER.findall(tower)]
    power = 1.0
    for exponent in reversed(exponents):
        if power > 1 and power * math.log2(max(exponent, 1.0)) > MOST_BITS.bit_length():
            return math.inf
        power = exponent**power
    return power * math.log2(max(base, 1.0))
