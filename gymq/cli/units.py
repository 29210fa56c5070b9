"""Quantities as people read them."""

from __future__ import annotations

from datetime import datetime

from rich.filesize import decimal

_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def shown_bytes(count: int) -> str:
    """`1.2 MB`."""
    return decimal(count)


def shown_seconds(seconds: float) -> str:
    """`0.24 s`, `12 s`, `3 min`, `5 h 20 min`, `3 d 4 h`."""
    if seconds < 10:
        return f"{seconds:.2f} s"
    if seconds < 2 * _MINUTE:
        return f"{seconds:.0f} s"
    if seconds < 2 * _HOUR:
        return f"{seconds // _MINUTE:.0f} min"
    if seconds < 2 * _DAY:
        return f"{seconds // _HOUR:.0f} h {seconds % _HOUR // _MINUTE:.0f} min"
    return f"{seconds // _DAY:.0f} d {seconds % _DAY // _HOUR:.0f} h"


def shown_time(unix_s: float) -> str:
    """Local date and time; `-` for a time that nobody noted."""
    return datetime.fromtimestamp(unix_s).strftime("%Y-%m-%d %H:%M") if unix_s else "-"
