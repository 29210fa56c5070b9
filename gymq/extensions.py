"""What packages beside the core add to it, by the entry points that they declare."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points


def extensions(kind: str) -> list[EntryPoint]:
    """Return the entry points `gymq.KIND` of all installed packages, by name."""
    return sorted(entry_points(group=f"gymq.{kind}"), key=lambda found: found.name)
