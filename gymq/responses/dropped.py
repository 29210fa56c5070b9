"""Warnings about parts of requests that are dropped, once for each."""

from __future__ import annotations

import logging

MAX_NAME = 60  # characters of a name in a warning
_MAX_WARNINGS = 1000  # different ones in one process; the names come from outside
_log = logging.getLogger("gymq.responses")
_reported: set[str] = set()


def warn_once(message: str) -> None:
    """Log a warning unless this process has logged it before."""
    if message not in _reported and len(_reported) < _MAX_WARNINGS:
        _reported.add(message)
        _log.warning("%s", message)
