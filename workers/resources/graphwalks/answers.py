"""Reading nodes out of a reply and out of a row, and comparing them."""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Set
from typing import Any

# White space is matched possessively, so a line of them takes linear time.
_OPENING = re.compile(r"Final Answer:\s*+\[")


def predicted_nodes(reply: str) -> list[str] | None:
    """Return the nodes that the last line of a reply names, in their order; None if it is not an answer line.

    A line ends at a line feed; blank ones do not count. The list ends at the last closing bracket of the line.
    """
    lines = [line for line in reply.strip().split("\n") if line.strip()]
    opening = _OPENING.search(lines[-1]) if lines else None
    if opening is None:
        return None
    end = lines[-1].rfind("]", opening.end())
    if end < 0:
        return None
    names = (name.strip() for name in lines[-1][opening.end() : end].split(","))
    return [name for name in names if name]


def expected_nodes(text: str) -> Set[Hashable]:
    """Return the elements of a JSON list; a value of another type gives what Python's `set` makes of it, or nothing."""
    try:
        expected: Any = json.loads(text)
        return frozenset(expected)
    except (ValueError, TypeError, RecursionError):
        return frozenset()


def f1(predicted: Set[Hashable], expected: Set[Hashable]) -> float:
    """Return the harmonic mean of precision and recall of a set of nodes, from 0 to 1; 1 if both sets are empty."""
    if not predicted and not expected:
        return 1.0
    common = len(predicted & expected)
    if common == 0:
        return 0.0
    precision, recall = common / len(predicted), common / len(expected)
    return 2 * precision * recall / (precision + recall)
