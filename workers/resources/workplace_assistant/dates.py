"""Dates and times as the model writes them, and the office's clock, which stands still."""

from __future__ import annotations

from datetime import datetime

try:
    from dateutil import parser
except ModuleNotFoundError:
    raise ModuleNotFoundError('workplace_assistant needs python-dateutil: pip install "gymq[resources]"') from None

NOW = datetime(2023, 11, 30, 23, 59)
NOW_TEXT = "2023-11-30 23:59:00"

_MAX_CHARACTERS = 100  # the parser is not made for more


def parse_time(text: object) -> datetime:
    """Return a date or time in any usual notation; what it leaves out is taken from today.

    Raises:
        ValueError: it is not one.
    """
    if not isinstance(text, str) or len(text) > _MAX_CHARACTERS:
        raise ValueError(f"{str(text)[:_MAX_CHARACTERS]!r} is not a date or time")
    try:
        return parser.parse(text, default=NOW.replace(hour=0, minute=0))
    except (ValueError, OverflowError):
        raise ValueError(f"{text!r} is not a date or time") from None


def is_time(text: object) -> bool:
    """Return whether `parse_time` can read it."""
    try:
        parse_time(text)
    except ValueError:
        return False
    return True
