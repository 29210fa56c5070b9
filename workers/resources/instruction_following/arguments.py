"""Checks of arguments that several instructions have."""

from __future__ import annotations


def compare(count: int, relation: str, threshold: float) -> bool:
    """Whether a count is `less than` or `at least` a threshold.

    Raises:
        ValueError: it is another relation.
    """
    if relation == "less than":
        return count < threshold
    if relation == "at least":
        return count >= threshold
    raise ValueError(f"{relation!r} is not a relation")


def not_below(minimum: int, number: int) -> int:
    """The number.

    Raises:
        ValueError: it is below the minimum.
    """
    if number < minimum:
        raise ValueError(f"{number} is below {minimum}")
    return number


def given(words: str) -> str:
    """Words without outer white space.

    Raises:
        ValueError: there are none.
    """
    if not words:
        raise ValueError("no words are given")
    return words.strip()
