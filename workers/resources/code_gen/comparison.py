"""Reading and comparing the output of a program, and comparing it as NeMo Gym does."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any

RELATIVE, ABSOLUTE = 1e-5, 1e-8  # of a float that a function returns
PRINTED_RELATIVE, PRINTED_ZERO = 1e-9, 1e-12  # of a float that a program prints
LONGEST_INT_DIGITS = 4_000  # Python reads no longer ones unless it is told to

_WHOLE = re.compile(r"[+-]?\d+")


class ByNumbers:
    """Takes floats that differ by rounding, also in lists; a whole number is no other one, however close."""

    def same_output(self, printed: str, expected: str) -> bool:
        return _by_lines(printed, expected, _same_printed_number)

    def same_value(self, returned: Any, expected: Any) -> bool:
        if isinstance(returned, list) and isinstance(expected, list):
            return len(returned) == len(expected) and all(map(self._same_member, returned, expected))
        if isinstance(returned, dict) and isinstance(expected, dict):
            return returned.keys() == expected.keys() and all(
                self._same_member(returned[name], expected[name]) for name in expected
            )
        return _same_scalar(returned, expected, whole_is_exact=True)

    def _same_member(self, returned: Any, expected: Any) -> bool:
        if isinstance(returned, str) or isinstance(expected, str):
            return bool(returned == expected)
        return self.same_value(returned, expected)


class Published:
    """Takes close floats only outside of lists, and close whole numbers too."""

    def same_output(self, printed: str, expected: str) -> bool:
        return _by_lines(printed, expected, lambda word, other: Decimal(word) == Decimal(other))

    def same_value(self, returned: Any, expected: Any) -> bool:
        return _same_scalar(returned, expected, whole_is_exact=False)


OutputRule = ByNumbers | Published


def read_json(text: str | bytes) -> Any:
    """Return a value of JSON; a whole number of thousands of digits as a `Decimal`.

    Raises:
        ValueError: it is not JSON.
        RecursionError: it is nested too deeply.
    """
    return json.loads(text, parse_int=lambda digits: (int if len(digits) <= LONGEST_INT_DIGITS else Decimal)(digits))


def same_whole_number(value: Any, expected: Any) -> bool | None:
    """Return whether a number is the whole number that is expected; None if that is for a tolerance to say.

    Raises:
        TypeError, ValueError, OverflowError: a whole number is expected, and the value is not a number.
    """
    if not _is_whole(expected):
        return None
    if _is_whole(value):
        return Decimal(value) == Decimal(expected)
    return None if abs(float(value) - float(expected)) < 0.5 else False


def _same_scalar(returned: Any, expected: Any, *, whole_is_exact: bool) -> bool:
    """Equal, or equal as JSON text, or close as floats, which numeric texts are too.

    Args:
        whole_is_exact: whether a whole number is no other one. Without it all of 309 digits and more are one.
    """
    if returned == expected or json.dumps(returned, default=str) == json.dumps(expected, default=str):
        return True
    try:
        if whole_is_exact and (same := same_whole_number(returned, expected)) is not None:
            return same
        ours, theirs = float(returned), float(expected)
    except (TypeError, ValueError, OverflowError):
        return False
    return ours == theirs or (math.isfinite(theirs) and abs(ours - theirs) <= ABSOLUTE + RELATIVE * abs(theirs))


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | Decimal) or (isinstance(value, str) and _WHOLE.fullmatch(value.strip()) is not None)


def _by_lines(printed: str, expected: str, same_number: Callable[[str, str], bool]) -> bool:
    """Compare line by line, without blanks at the ends; lines of numbers word by word."""
    ours, theirs = (text.strip().split("\n") for text in (printed, expected))
    return len(ours) == len(theirs) and all(_same_line(*lines, same_number) for lines in zip(ours, theirs, strict=True))


def _same_line(ours: str, theirs: str, same_number: Callable[[str, str], bool]) -> bool:
    ours, theirs = ours.strip(), theirs.strip()
    if ours == theirs:
        return True
    words, wanted = ours.split(), theirs.split()
    if len(words) != len(wanted):
        return False
    try:
        return all(map(same_number, words, wanted))
    except InvalidOperation:  # no number, or a NaN that signals
        return False


def _same_printed_number(word: str, other: str) -> bool:
    """Return whether two numbers are the same but for the rounding of a float."""
    ours, theirs = Decimal(word), Decimal(other)
    if ours == theirs:
        return True
    if not (ours.is_finite() and theirs.is_finite()):
        return False
    if (
        (_WHOLE.fullmatch(word) or _WHOLE.fullmatch(other))
        and ours == ours.to_integral_value()
        and theirs == theirs.to_integral_value()
    ):
        return False
    return abs(ours - theirs) <= max(abs(ours), abs(theirs)) * Decimal(PRINTED_RELATIVE) or (
        0 in (ours, theirs) and max(abs(ours), abs(theirs)) <= PRINTED_ZERO
    )
