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
    is_whole = hardened and _is_whole(expected)
    if is_whole and _is_whole(returned):
        return Decimal(returned) == Decimal(expected)
    try:
        ours, theirs = float(returned), float(expected)
    except (TypeError, ValueError, OverflowError):
        return False
    close = math.isfinite(theirs) and abs(ours - theirs) <= ABSOLUTE + RELATIVE * abs(theirs)
    return close and abs(ours - theirs) < 0.5 if is_whole else ours == theirs or close


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
