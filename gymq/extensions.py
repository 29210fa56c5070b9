"""What packages beside the core add to it, by the entry points that they declare."""

from __future__ import annotations

import functools
from importlib.metadata import EntryPoint, entry_points

_entry_points = functools.cache(entry_points)  # it reads a file of every package that is installed


def extensions(kind: str) -> list[EntryPoint]:
    """Return the entry points `gymq.KIND` of all installed packages, by name."""
    return sorted(_entry_points().select(group=f"gymq.{kind}"), key=lambda found: found.name)
