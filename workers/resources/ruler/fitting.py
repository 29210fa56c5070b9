"""How much goes into a prompt: the largest size that is not too long."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import gymq

T = TypeVar("T")


def largest_size(length_of: Callable[[int], int], limit: int, step: int) -> int:
    """Return the largest multiple of a step whose length is at most the limit, as RULER looks for it.

    It is searched for by halving, between one step and three times what the length of one step lets expect.

    Raises:
        OptionsError: one step is too long.
    """
    shortest = length_of(step)
    if shortest > limit:
        raise gymq.OptionsError(f"no prompt is that short: give at least {shortest - limit} tokens more")
    per_step = max(length_of(2 * step) - shortest, 1)
    low, high = 1, max(1, 3 * (limit // per_step))
    while low < high:
        middle = (low + high + 1) // 2
        if length_of(middle * step) <= limit:
            low = middle
        else:
            high = middle - 1
    return low * step


def made_to_fit(make: Callable[[int], T], length_of: Callable[[T], int], size: int, step: int, limit: int) -> T:
    """Return what is made of a size, or of the next smaller one that is not too long; the smallest is one step."""
    made = make(size)
    while length_of(made) > limit and size > step:
        size -= step
        made = make(size)
    return made
