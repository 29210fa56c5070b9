"""The event loop of processes in which many messages pass."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

GC_THRESHOLDS = (5_000, 20, 50)
"""With Python's own a third of an agent's time with 8,000 rollouts in flight was the search for cycles among them."""


def run(work: Coroutine[Any, Any, T]) -> T:
    """Do what `asyncio.run` does, on uvloop where there is one: not on Windows. Collect garbage less often."""
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        import uvloop
    except ImportError:
        return asyncio.run(work)
    return uvloop.run(work)
