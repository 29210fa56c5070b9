"""Comparing numbers: exactly where they are exact, relatively otherwise. Imports sympy, so only for processes."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

DIGITS = 60
SAME_EXACT = 10 ** -(DIGITS - 15)  # relative difference of exact numbers that are the same, in that many digits
MOST_BITS, MOST_FACTORS = 1_000_000, 10_000  # of whole numbers that are calculated
SAME_DECIMAL = 2e-6  # relative difference of decimals that are the same, such as 0.333333 and 1/3


def same_number(expected: Any, answer: Any) -> bool | None:
    """Return whether two expressions of sympy are the same number; None if one is none, or cannot be calculated."""
    from sympy import Float

    expected, answer = as_number(expected), as_number(answer)
    if expected is None or answer is None:
        return None
    exact = _fraction(expected), _fraction(answer)
    if None not in exact:
        return exact[0] == exact[1]
    is_decimal = any(one.has(Float) for one in (expected, answer))
    ours, theirs = (_value(one) for one in (expected, answer))
    if ours is None or theirs is None:
        return None
    largest = max(abs(ours), abs(theirs))
    if not largest:
        return True
    if is_decimal and all(one.is_real and not one - round(one) for one in (ours, theirs)):
        return int(ours) == int(theirs)
    return bool(abs(ours - theirs) <= largest * (SAME_DECIMAL if is_decimal else SAME_EXACT))


def as_number(one: Any) -> Any:
    """Return a number, in which the letter i is the imaginary unit; None for what is none."""
    from sympy import Basic, I

    if not isinstance(one, Basic):
        return None
    units = {letter: I for letter in one.free_symbols if letter.name == "i"}
    number = one.subs(units) if units and len(units) == len(one.free_symbols) else one
    return number if getattr(number, "is_number", False) else None


def _fraction(number: Any) -> Fraction | None:
    """Return a number made of whole ones by sums, products, powers and factorials; None for others and huge ones."""
    from sympy import factorial

    if number.is_Rational:
        return Fraction(int(number.p), int(number.q))
    found = [_fraction(part) for part in number.args]
    parts = [part for part in found if part is not None]
    if not parts or len(parts) < len(found):
        return None
    if number.is_Add:
        return sum(parts, Fraction(0))
    if number.is_Mul:
        return math.prod(parts, start=Fraction(1))
    first = parts[0]
    if number.is_Pow and parts[1].denominator == 1:
        power = int(parts[1])
        size = max(first.numerator.bit_length(), first.denominator.bit_length()) * abs(power)
        return None if size > MOST_BITS or (power < 0 and not first) else first**power
    if number.func is factorial and first.denominator == 1 and 0 <= first <= MOST_FACTORS:
        return Fraction(math.factorial(int(first)))
    return None


def _value(number: Any) -> Any:
    """Return a number in many digits; None if it is infinite or has no value."""
    value = _with_real_roots(number).evalf(DIGITS)
    real, imaginary = value.as_real_imag()
    if not (real.is_Float or real.is_Rational) or not (imaginary.is_Float or imaginary.is_Rational):
        return None
    return value if value.is_finite else None


def _with_real_roots(number: Any) -> Any:
    """Return a number in which an odd root of a negative number is the negative one."""
    return number.replace(_is_odd_root_of_negative, lambda root: (-1) ** root.exp.p * (-root.base) ** root.exp)


def _is_odd_root_of_negative(one: Any) -> bool:
    return bool(
        one.is_Pow and one.exp.is_Rational and one.exp.q % 2 and one.exp.q > 1 and one.base.is_real and one.base < 0
    )
