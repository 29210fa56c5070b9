"""The arguments of rules: each has one type, whatever the rule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Positions, which count from the end if they are negative; the others of these have no meaning as zero.
POSITIONS = {"n": False, "m": False, "n_start": True, "n_end": False}
NUMBERS = frozenset({"min_words", "max_words", "N", "small_n", "percentage"})
NOT_EMPTY = frozenset(
    {"word", "keyword", "keyword1", "keyword2", "keyword3", "keyword4", "keyword5", "prompt_to_repeat"}
)


def checked(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments without those that are null.

    Raises:
        ValueError: one of them has a type or a value with which no text can be checked.
    """
    given = {name: value for name, value in arguments.items() if value is not None}
    wrong = [name for name, value in given.items() if not _makes_sense(name, value)]
    if wrong:
        raise ValueError(f"{wrong[0]}: {given[wrong[0]]!r}")
    return given


def _makes_sense(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return False
    if name in POSITIONS:
        return isinstance(value, int) and (value != 0 or POSITIONS[name])
    if name in NUMBERS:
        return isinstance(value, int | float) and value >= 0
    return isinstance(value, str) and (bool(value) or name not in NOT_EMPTY)
