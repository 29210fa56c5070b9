"""Formulas that no answer needs: towers of powers, huge factorials, long sums, integrals, and brackets in brackets.

They take for ever to read or to calculate.
"""

from __future__ import annotations

import math
import re

MOST_BITS = 1_000_000  # of a power that is calculated
DEEPEST = 7  # brackets that are open at once

_OPENS = r"[{ ]{0,2}(?:\\left)?[(]?"
_TOWER = re.compile(rf"(?<![\d.])(?:\d++|e)(?: ?\^ ?{_OPENS} ?-?(?:\d++|e))+")
_NUMBER = re.compile(r"\d+|e")
_BRACKET = re.compile(r"[()\[\]{}]")
_LONG = re.compile(
    r"\d{6}[)} ]?!|\d{4}[)} ]?!!|![)}]{1,3} ?!|\\[dt]?binom ?\{ ?\d{6}|\\(?:sum|prod)(?![a-z])[^$]{0,60}\^ ?\{? ?\d{5}"
    r"|(?:\\(?:log|ln|exp|sin|cos|tan) ?[({]{1,2}){4}|[a-z][^()]{0,40}\) ?\^ ?\{? ?\d{3}|\\(?:o|i{0,3})int(?![a-z])"
)


def end_of_huge(text: str) -> int:
    """Return where the last formula ends that takes too long; 0 without one."""
    towers = [found.end() for found in _TOWER.finditer(text) if _bits(found[0]) > MOST_BITS]
    return max([_end_of_deep(text), *towers, *(found.end() for found in _LONG.finditer(text))])


def _end_of_deep(text: str) -> int:
    """Return where the last bracket is that lies too deep in others."""
    depth = end = 0
    for bracket in _BRACKET.finditer(text):
        depth = max(depth + (1 if bracket[0] in "([{" else -1), 0)
        end = bracket.end() if depth > DEEPEST else end
    return end


def _bits(tower: str) -> float:
    base, *exponents = [math.e if number == "e" else float(number) for number in _NUMBER.findall(tower)]
    power = 1.0
    for exponent in reversed(exponents):
        if power > 1 and power * math.log2(max(exponent, 1.0)) > MOST_BITS.bit_length():
            return math.inf
        power = exponent**power
    return power * math.log2(max(base, 1.0))
