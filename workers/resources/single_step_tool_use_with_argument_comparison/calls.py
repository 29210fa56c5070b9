"""Comparing the tool calls of a response with the expected ones, in any order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import pydantic
from gymq.workers.resources.single_step_tool_use_with_argument_comparison.arguments import (
    Tolerance,
    Words,
    first_difference,
    parse_json,
    similar_in_any_words,
    similar_in_telling_words,
)

SAME = "expected_tool_call"
ALL_SAME = "expected_tool_call_batch"
OTHER_TOOL = "unexpected_tool"
OTHER_NUMBER = "function_call_batch_length_different"
UNREADABLE = "arguments_decode_error"


class ComparatorOptions(pydantic.BaseModel):
    """How calls are compared, and whether their number counts."""

    model_config = pydantic.ConfigDict(extra="forbid")

    word_count_similarity_threshold: float = 0.1
    floating_point_comparison_threshold: float = 1e-6
    parallel_tool_call_rewarding: bool = False  # the number counts; without it, the options below have no effect
    allow_subset: bool = False
    allow_superset: bool = False
    parallel_tool_call_reward_mode: Literal["binary_strict", "fractional", "f1"] = "binary_strict"


class Call(NamedTuple):
    """A tool call whose arguments were parsed."""

    name: str
    arguments: Any
    readable: bool  # whether the arguments are JSON

    @classmethod
    def of(cls, name: str, arguments: str) -> Call:
        try:
            return cls(name, parse_json(arguments), True)
        except ValueError:
            return cls(name, None, False)


class Outcome(NamedTuple):
    """The reward of a step and what decided it."""

    reward: float
    category: str


class StepRule(NamedTuple):
    """What a rule set decides about a step.

    Attributes:
        similar: see `Tolerance`.
        surplus_calls_are_free: whether more calls than expected are admitted where their number does not count.
        blank_is_a_message: whether an empty text is a message.
    """

    similar: Callable[[Words, Words, float], bool]
    surplus_calls_are_free: bool
    blank_is_a_message: bool


AS_MEANT = StepRule(similar_in_telling_words, surplus_calls_are_free=False, blank_is_a_message=False)
PUBLISHED = StepRule(similar_in_any_words, surplus_calls_are_free=True, blank_is_a_message=True)


def compare_calls(expected: list[Call], actual: list[Call], options: ComparatorOptions, rule: StepRule) -> Outcome:
    """Score the calls that were made against the expected ones, at least one each."""
    if not _admissible(len(expected), len(actual), options, rule):
        return Outcome(0.0, OTHER_NUMBER)
    tolerance = Tolerance(
        options.word_count_similarity_threshold, options.floating_point_comparison_threshold, rule.similar
    )
    results = [[_compare(one, other, tolerance) for other in actual] for one in expected]
    if len(expected) == len(actual) == 1:
        return Outcome(float(results[0][0] == SAME), results[0][0])
    candidates = [[index for index, result in enumerate(row) if result == SAME] for row in results]
    matched = maximum_matching(candidates)
    reward = _reward(len(matched), len(expected), len(actual), options)
    if reward == 1.0:
        return Outcome(reward, SAME if len(expected) == 1 else ALL_SAME)
    if len(matched) in (len(expected), len(actual)):
        return Outcome(reward, OTHER_NUMBER)
    unmatched = next(index for index in range(len(expected)) if index not in matched)
    return Outcome(reward, _nearest_miss(results[unmatched]))


def _compare(expected: Call, actual: Call, tolerance: Tolerance) -> str:
    if expected.name != actual.name:
        return OTHER_TOOL
    if not actual.readable:
        return UNREADABLE
    return first_difference(expected.arguments, actual.arguments, tolerance) or SAME


def _admissible(expected: int, actual: int, options: ComparatorOptions, rule: StepRule) -> bool:
    if actual == expected:
        return True
    if not options.parallel_tool_call_rewarding:
        return actual < expected or rule.surplus_calls_are_free
    return options.allow_subset if actual < expected else options.allow_superset


def _reward(matched: int, expected: int, actual: int, options: ComparatorOptions) -> float:
    if not options.parallel_tool_call_rewarding:
        return float(matched == expected)
    required = min(expected, actual) if options.allow_subset else expected
    match options.parallel_tool_call_reward_mode:
        case "f1":
            return 2 * matched / (expected + actual)
        case "fractional":
            return matched / required
        case "binary_strict":
            return float(matched == required)


def _nearest_miss(results: list[str]) -> str:
    """Why no call is the expected one: the first reason that got past the tool's name."""
    return next((result for result in results if result not in (SAME, OTHER_TOOL)), OTHER_TOOL)


def maximum_matching(candidates: list[list[int]]) -> dict[int, int]:
    """Return a maximum matching of a bipartite graph, by augmenting paths (Kuhn, 1955).

    Those with the fewest candidates come first; who was given a partner once keeps one.

    Args:
        candidates: for each member of the one side the members of the other side that would do.

    Returns:
        The partner of each member of the one side that got one.
    """
    partners: dict[int, int] = {}
    taken_by: dict[int, int] = {}
    for member in sorted(range(len(candidates)), key=lambda index: len(candidates[index])):
        _find_partner(member, candidates, partners, taken_by)
    return partners


def _find_partner(member: int, candidates: list[list[int]], partners: dict[int, int], taken_by: dict[int, int]) -> None:
    """Give the member a partner if the others can make room."""
    reached_from: dict[int, int] = {}
    pending = deque([member])
    while pending:
        current = pending.popleft()
        for candidate in candidates[current]:
            if candidate in reached_from:
                continue
            reached_from[candidate] = current
            if candidate not in taken_by:
                _hand_on(candidate, reached_from, partners, taken_by)
                return
            pending.append(taken_by[candidate])


def _hand_on(free: int, reached_from: dict[int, int], partners: dict[int, int], taken_by: dict[int, int]) -> None:
    """Each member on the path to a free candidate takes the next one; the first on the path had none."""
    candidate: int | None = free
    while candidate is not None:
        member = reached_from[candidate]
        left = partners.get(member)
        partners[member], taken_by[candidate] = candidate, member
        candidate = left
