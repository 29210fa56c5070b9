"""Which answers of a group are compared with each other."""

from __future__ import annotations

from typing import Literal

Strategy = Literal["circular", "all_pairs"]
Pair = tuple[int, int]


def pairs_with(newest: int, strategy: Strategy) -> list[Pair]:
    """Return the pairs of an answer with those before it that can be compared as soon as it is there."""
    if strategy == "all_pairs":
        return [(earlier, newest) for earlier in range(newest)]
    return [(newest - 1, newest)] if newest else []


def all_pairs(size: int, strategy: Strategy) -> list[Pair]:
    """Return all pairs of a group, in order.

    In a circle each answer is once the first and once the second of a pair.
    """
    pairs = [pair for newest in range(size) for pair in pairs_with(newest, strategy)]
    if strategy == "all_pairs":
        return sorted(pairs)
    return [*pairs, (size - 1, 0)]
