"""How alike two texts are. A ratio can take quadratic time, so it runs in a process that can be killed."""

from __future__ import annotations

import difflib
from typing import Literal

Rule = Literal["exact", "seq_match", "weighted_seq_match"]

PREFIX_CHARS = 10
PREFIX_WEIGHT = 0.15


def normalised(text: str) -> str:
    """Return the text in lower case with single blanks."""
    return " ".join(text.lower().split())


def ratio(reply: str, expected: str) -> float:
    """Return the share of characters that match, from 0 to 1, as Python's `difflib` finds them.

    The order of the texts matters, and so does what `difflib` does by default: in an expected text of 200 or more
    characters those that are frequent begin no match.
    """
    return difflib.SequenceMatcher(None, reply, expected).ratio()


def weighted_ratio(reply: str, expected: str) -> float:
    """Return the ratio of the texts and that of their beginnings, weighted."""
    prefix = min(PREFIX_CHARS, len(expected))
    score = (1 - PREFIX_WEIGHT) * ratio(reply, expected) + PREFIX_WEIGHT * ratio(reply[:prefix], expected[:prefix])
    return min(1.0, max(0.0, score))
