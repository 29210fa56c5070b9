"""Checks of arguments that several instructions have."""

from __future__ import annotations

from collections.abc import Callable

Check = Callable[..., bool]
"""Takes the text, and the instruction's arguments by keyword; raises an error if an argument makes no sense."""


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


def first_given(words: str | list[str]) -> str:
    """The words, or the first of several.

    Raises:
        ValueError: there are none.
    """
    return given(words if isinstance(words, str) else words[0])
