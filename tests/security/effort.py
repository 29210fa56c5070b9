"""How much work a function does, counted and not timed: the lines of Python that it runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

# What an effort that grows with the length may grow by when the length grows fourfold; with its square it is 16.
FOURFOLD = 5.0


def lines_run(function: Callable[..., Any], *arguments: Any) -> int:
    """Return how many lines of Python a call runs, those of what it calls included."""
    count = 0

    def trace(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    earlier = sys.gettrace()
    sys.settrace(trace)
    try:
        function(*arguments)
    finally:
        sys.settrace(earlier)
    return count


def growth(function: Callable[..., Any], text_of: Callable[[int], str], n: int, *arguments: Any) -> float:
    """Return how many times more work a text made of 4 n parts is than one of n."""
    return lines_run(function, text_of(4 * n), *arguments) / lines_run(function, text_of(n), *arguments)
