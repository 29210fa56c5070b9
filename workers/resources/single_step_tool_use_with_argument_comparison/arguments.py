"""Comparing the arguments of a tool call with the expected ones: with tolerance in texts and in fractions."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

Words = Counter[str]


class Tolerance(NamedTuple):
    """How far a value may be from the expected one."""

    word_similarity: float  # two texts of two words or more have to reach it
    difference: float  # two fractions have to be closer than this
    similar: Callable[[Words, Words, float], bool]  # of the words of two texts, whether they reach a similarity


_NEGATIONS = frozenset({"not", "no", "never", "without", "cannot"})
_COMMON = """
a about all also an and any are as at be been but by can could did do does for from had has have he her his how i if in
into is it its just me more my no not of on or our please she should so some than that the their them then there these
they this to up us was we were what when which who will with would you your
"""
_COMMON_WORDS = frozenset(_COMMON.split())
_MOSTLY = 0.8  # share of the words of both texts that a text has in common with its negation


def parse_json(text: str) -> Any:
    """Return the value that a text writes as JSON.

    Raises:
        ValueError: it is no JSON, or nests too deeply.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("the JSON nests too deeply") from None


def first_difference(expected: Any, actual: Any, tolerance: Tolerance) -> str | None:
    """Return the category of the first difference between two JSON values, in the order of the expected one.

    None if they are equal.
    """
    pending = [(expected, actual)]
    while pending:
        expected, actual = pending.pop()
        # An integer does not match a fraction nor a fraction an integer, but `true` passes for the integer 1.
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
        return bool(abs(expected - actual) < tolerance.difference)
    if isinstance(expected, str):
        return _similar_texts(expected, actual, tolerance)
    return bool(expected == actual)


def _similar_texts(expected: str, actual: str, tolerance: Tolerance) -> bool:
    """Return whether texts of two words or more are similar, or shorter ones the same."""
    expected_words, actual_words = Counter(expected.lower().split()), Counter(actual.lower().split())
    if min(expected_words.total(), actual_words.total()) < 2:
        return expected == actual
    return tolerance.similar(expected_words, actual_words, tolerance.word_similarity)


def similar_in_telling_words(expected: Words, actual: Words, threshold: float) -> bool:
    """Return whether two texts are alike: not by words that any text has, nor one and its negation."""
    if threshold <= 0:
        return True
    if _is_negation(expected, actual):
        return False
    telling = _telling(expected)
    return _similarity(telling or expected, _telling(actual) if telling else actual) >= threshold


def similar_in_any_words(expected: Words, actual: Words, threshold: float) -> bool:
    """Return whether two texts are alike, whatever their words in common."""
    return _similarity(expected, actual) >= threshold


def _similarity(one: Words, other: Words) -> float:
    """Return the words in common, divided by the words of both texts together: of equal texts 0.5."""
    total = one.total() + other.total()
    return (one & other).total() / total if total else 0.0


def _telling(words: Words) -> Words:
    return Counter({word: count for word, count in words.items() if word.strip(".,;:!?") not in _COMMON_WORDS})


def _is_negation(one: Words, other: Words) -> bool:
    """Return whether two texts are nearly the same, but only one of them says no."""
    mostly_the_same = 2 * _similarity(one, other) >= _MOSTLY
    return mostly_the_same and _says_no(one) != _says_no(other)


def _says_no(words: Words) -> bool:
    return any(word in _NEGATIONS or word.endswith(("n't", "n\u2019t")) for word in words)
