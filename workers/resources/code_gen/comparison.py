"""Comparing the output of a program with the expected one."""

from __future__ import annotations

import json
import math
from decimal import Decimal, InvalidOperation
from typing import Any

RELATIVE, ABSOLUTE = 1e-5, 1e-8


def same_output(printed: str, expected: str) -> bool:
    """Line by line, without blanks at the ends; lines of decimal numbers agree if the numbers are the same."""
    ours, theirs = (text.strip().split("\n") for text in (printed, expected))
    return len(ours) == len(theirs) and all(map(_same_line, ours, theirs))


def same_value(returned: Any, expected: Any) -> bool:
    """Equal, or equal as JSON text, or close as floats, which numeric texts are too."""
    if returned == expected or json.dumps(returned) == json.dumps(expected):
        return True
    try:
        ours, theirs = float(returned), float(expected)
    except (TypeError, ValueError, OverflowError):
        return False
    close = math.isfinite(theirs) and abs(ours - theirs) <= ABSOLUTE + RELATIVE * abs(theirs)
    return ours == theirs or close


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
