"""The two ways to compare the arguments of a call with the expected ones: by type, and as NeMo Gym does."""

from __future__ import annotations

import operator
from collections.abc import Callable, Container
from typing import Any, NamedTuple

Arguments = dict[str, Any]
Calls = list[tuple[str, Arguments]]  # names and arguments


def agree_by_type(expected: Arguments, given: Arguments, declared: Container[str] | None) -> bool:
    """Return whether every expected argument was given; true is no number, and the function has all that were given.

    Args:
        declared: names of the arguments that the function has; None where the row does not say.
    """
    further = given.keys() - expected.keys()
    return (declared is None or all(name in declared for name in further)) and _all_given(expected, given, _same)


def agree_as_published(expected: Arguments, given: Arguments, declared: Container[str] | None) -> bool:
    """Return whether every expected argument was given, with a value that Python finds equal."""
    return _all_given(expected, given, operator.eq)


def _fewest_arguments_first(calls: Calls) -> Calls:
    return sorted(calls, key=lambda call: len(call[1]))


class CallRule(NamedTuple):
    """How expected calls find calls of a response.

    Attributes:
        agree: returns whether the arguments of a call are the expected ones.
        in_order: returns the calls in the order in which they are tried.
    """

    agree: Callable[[Arguments, Arguments, Container[str] | None], bool]
    in_order: Callable[[Calls], Calls]


BY_TYPE = CallRule(agree_by_type, _fewest_arguments_first)
PUBLISHED = CallRule(agree_as_published, list)


def _all_given(expected: Arguments, given: Arguments, same: Callable[[Any, Any], bool]) -> bool:
    try:
        return all(name in given and same(given[name], value) for name, value in expected.items())
    except RecursionError:
        return False


def _same(value: Any, other: Any) -> bool:
    """Return whether two values of JSON are equal, where true and false are no numbers."""
    if isinstance(value, list) and isinstance(other, list):
        return len(value) == len(other) and all(map(_same, value, other))
    if isinstance(value, dict) and isinstance(other, dict):
        return value.keys() == other.keys() and all(_same(value[name], other[name]) for name in value)
    return isinstance(value, bool) == isinstance(other, bool) and bool(value == other)
