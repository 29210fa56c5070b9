"""Processes: computations that can be killed at a time limit, and common properties of all processes of gymq.

The names here are for authors. They load on first use, since Pebble is slow to import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gymq.processes.killable import ComputeLimits as ComputeLimits
    from gymq.processes.killable import CpuTimeUsedUp as CpuTimeUsedUp
    from gymq.processes.killable import KillableProcesses as KillableProcesses

__all__ = ["ComputeLimits", "CpuTimeUsedUp", "KillableProcesses"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'gymq.processes' has no attribute {name!r}")
    from gymq.processes import killable

    value = globals()[name] = getattr(killable, name)
    return value
