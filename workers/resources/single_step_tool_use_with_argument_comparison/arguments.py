"""Comparing the arguments of a tool call with the expected ones: with tolerance in texts and in fractions."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, NamedTuple


class Tolerance(NamedTuple):
    """How far a value may be from the expected one."""

    word_similarity: float  # two texts of two words or more have to reach it
    difference: float  # two fractions have to be closer than this


def parse_json(text: str) -> Any:
    """The value that a text writes as JSON.

    Raises:
        ValueError: it is no JSON, or nests too deeply.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("the JSON nests too deeply") from None


def first_difference(expected: Any, actual: Any, tolerance: Tolerance) -> str | None:
    """The category of the first difference between two JSON values, in the order of the expected one; None if equal."""
    pending = [(expected, actual)]
    while pending:
        expected, actual = pending.pop()
        # An integer is no fraction and a fraction no integer, but `true` passes for the integer 1.
        if not isinstance(actual, type(expected)):
            return "argument_value_type_different"
        if isinstance(expected, dict):
            if expected.keys() != actual.keys():
                return "argument_object_keys_different"
            pending += reversed([(value, actual[key]) for key, value in expected.items()])
        elif isinstance(expected, list):
            if len(expected) != len(actual):
                return "argument_list_length_different"
            pending += reversed(list(zip(expected, actual, strict=True)))
        elif not _same_scalar(expected, actual, tolerance):
            return "argument_value_different"
    return None


def _same_scalar(expected: Any, actual: Any, tolerance: Tolerance) -> bool:
    if isinstance(expected, float):
        return abs(expected - actual) < tolerance.difference
    if isinstance(expected, str):
        return _similar_texts(expected, actual, tolerance.word_similarity)
    return bool(expected == actual)


def _similar_texts(expected: str, actual: str, threshold: float) -> bool:
    """Words in common, divided by the words of both texts together: texts that are the same reach 0.5."""
    expected_words, actual_words = Counter(expected.lower().split()), Counter(actual.lower().split())
    if min(expected_words.total(), actual_words.total()) < 2:
        return expected == actual
    common = (expected_words & actual_words).total()
    return common / (expected_words.total() + actual_words.total()) >= threshold
