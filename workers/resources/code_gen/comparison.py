"""Comparing the output of a program with the expected one."""

from __future__ import annotations

import json
import math
import re
from decimal import Decimal, InvalidOperation
from typing import Any

RELATIVE, ABSOLUTE = 1e-5, 1e-8

_WHOLE = re.compile(r"[+-]?\d+")


def same_output(printed: str, expected: str) -> bool:
    """Line by line, without blanks at the ends; lines of decimal numbers agree if the numbers are the same."""
    ours, theirs = (text.strip().split("\n") for text in (printed, expected))
    return len(ours) == len(theirs) and all(map(_same_line, ours, theirs))


def same_value(returned: Any, expected: Any, *, hardened: bool = True) -> bool:
    """Equal, or equal as JSON text, or close as floats, which numeric texts are too.

    Args:
        hardened: whether a whole number is no other one, however close. Without it all of 309 digits and more are one.
    """
    if returned == expected or json.dumps(returned) == json.dumps(expected):
        return True
    try:
        if hardened and (same := same_whole_number(returned, expected)) is not None:
            return same
        ours, theirs = float(returned), float(expected)
    except (TypeError, ValueError, OverflowError):
        return False
    return ours == theirs or (math.isfinite(theirs) and abs(ours - theirs) <= ABSOLUTE + RELATIVE * abs(theirs))


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


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) or (isinstance(value, str) and _WHOLE.fullmatch(value.strip()) is not None)


def _same_line(ours: str, theirs: str) -> bool:
    ours, theirs = ours.strip(), theirs.strip()
    if ours == theirs:
        return True
    words, wanted = ours.split(), theirs.split()
    if len(words) != len(wanted):
        return False
    try:
        return all(Decimal(word) == Decimal(other) for word, other in zip(words, wanted, strict=True))
    except InvalidOperation:  # no number, or a NaN that signals
        return False
