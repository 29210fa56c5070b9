"""xlam_fc: function calling. The calls of the response have to be the expected ones, in any order.

The functions are declared in the row and never run. Derived from the data set xlam-function-calling-60k (Liu et al.,
2024, "APIGen").
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import pydantic

import gymq

Arguments = dict[str, Any]
Calls = list[tuple[str, Arguments]]  # names and arguments


def agree_by_type(expected: Arguments, given: Arguments, declared: Container[str] | None) -> bool:
    """Return whether every expected argument was given; true is not a number, and the function has all that were given.

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
    """Return whether two values of JSON are equal, where true and false are not numbers."""
    if isinstance(value, list) and isinstance(other, list):
        return len(value) == len(other) and all(map(_same, value, other))
    if isinstance(value, dict) and isinstance(other, dict):
        return value.keys() == other.keys() and all(_same(value[name], other[name]) for name in value)
    return isinstance(value, bool) == isinstance(other, bool) and bool(value == other)


class CallsRow(gymq.Row):
    expected_answers: list[dict[str, Any]] = pydantic.Field([])  # {name, arguments}


class FunctionCalling(gymq.Resources[CallsRow]):
    """Reward 1 if the calls made are exactly the expected ones. A call may have further arguments of its function."""

    reward_range = (0.0, 1.0)

    class Options(gymq.WorkerOptions):
        hardened: bool = True  # false: true counts as 1, and a call may have arguments that its function has not

    async def start(self) -> None:
        self._rule = BY_TYPE if self.options.hardened else PUBLISHED

    async def verify(self, request: gymq.VerifyRequest[CallsRow]) -> gymq.Verdict:
        expected = request.row.expected_answers
        calls = request.function_calls
        matched = count_matches(calls, expected, self._rule, declared_arguments(request.row))
        return gymq.Verdict(
            float(matched == len(expected) == len(calls)),
            num_expected=len(expected),
            num_predicted=len(calls),
            num_correct=matched,
            predicted_calls=[{"name": call["name"], "arguments": reported_arguments(call)} for call in calls],
        )


def declared_arguments(row: CallsRow) -> dict[str, frozenset[str]]:
    """Return the names of the arguments of each function that the row declares without leaving it open for others."""
    declared = {}
    for tool in row.responses_create_params.get("tools") or []:
        parameters = tool.get("parameters") or {}
        if isinstance(parameters.get("properties"), dict) and parameters.get("additionalProperties") in (None, False):
            declared[tool.get("name")] = frozenset(parameters["properties"])
    return declared


def count_matches(
    calls: Sequence[Mapping[str, Any]],
    expected: list[dict[str, Any]],
    rule: CallRule,
    declared: Mapping[str, frozenset[str]],
) -> int:
    """Return how many expected calls find a call of their own.

    Each takes the first one that is left.
    """
    left = rule.in_order([(call["name"], as_object(parsed(call.get("arguments")))) for call in calls])
    found = 0
    for answer in expected:
        arguments = as_object(answer.get("arguments"))
        for position, (name, given) in enumerate(left):
            if name == answer.get("name") and rule.agree(arguments, given, declared.get(name)):
                del left[position]
                found += 1
                break
    return found


def parsed(arguments: str | None) -> Any:
    """Return the arguments that a model wrote as JSON; none at all if they are not JSON."""
    try:
        return json.loads(arguments or "")
    except (ValueError, RecursionError):
        return {}


def as_object(arguments: Any) -> dict[str, Any]:
    """Arguments for comparison: a text is read as JSON once more, and other values count as none at all."""
    if isinstance(arguments, str):
        arguments = parsed(arguments)
    return arguments if isinstance(arguments, dict) else {}


def reported_arguments(call: Mapping[str, Any]) -> Any:
    """Return the arguments as parsed, or the text itself if no message can carry them, such as huge integers."""
    arguments = parsed(call.get("arguments"))
    try:
        msgspec.msgpack.encode(arguments)
    except (OverflowError, UnicodeError, RecursionError):
        return call["arguments"]
    return arguments
