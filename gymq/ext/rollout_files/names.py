"""Names of agents and runs that other programs gave."""

from __future__ import annotations

import re

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")


def name_of(text: str) -> str:
    """Return a text as the name of an agent or a run."""
    return _NOT_IN_NAMES.sub("-", text)[:64] or "unknown"
