"""Every single change to a recorded expectation is a difference: no part of a case can go wrong unseen."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from .cases import OWN_CASES, CaseFile, CoreCase, ResourcesCase, read_folder
from .comparison import CORE, TOOL, differences, field_differences

FILES = read_folder(OWN_CASES)
CORE_FILES = [file for file in FILES if file.is_core]
RESOURCES_FILES = [file for file in FILES if not file.is_core]


def changes(value: Any) -> Iterator[Any]:
    """Copies of a JSON value with one thing changed, at every depth."""
    if isinstance(value, dict):
        yield {**value, "one member more": 1}
        for key, member in value.items():
            if member is not None:
                yield {name: kept for name, kept in value.items() if name != key}
            for changed in changes(member):
                yield {**value, key: changed}
    elif isinstance(value, list):
        yield [*value, "one element more"]
        if value:
            yield value[:-1]
        if value[::-1] != value:
            yield value[::-1]
        for position, member in enumerate(value):
            for changed in changes(member):
                yield [*value[:position], changed, *value[position + 1 :]]
    elif isinstance(value, bool):
        yield not value
        yield str(value)
        yield int(value)
    elif isinstance(value, int | float):
        yield value + 1
        yield str(value)
    elif isinstance(value, str):
        yield f"{value}x"
        yield [value]
    else:
        yield "not null"


def answer_to(expected: Any) -> Any:
    """An answer that agrees with a core expectation: placeholders of random ids are filled in."""
    text = json.dumps(expected)
    for prefix in ("rs", "msg", "resp"):
        text = text.replace(f"<{prefix}_*>", f"{prefix}_0123456789abcdef")
    return json.loads(text)


@pytest.mark.parametrize("file", CORE_FILES, ids=lambda file: file.label)
def test_every_change_to_a_core_expectation_is_a_difference(file: CaseFile):
    for case in file.cases:
        assert isinstance(case, CoreCase)
        answer = answer_to(case.expect)
        assert differences(case.expect, answer, CORE) == []
        for changed in changes(case.expect):
            assert differences(changed, answer, CORE), (case.id, changed)


@pytest.mark.parametrize("file", RESOURCES_FILES, ids=lambda file: file.label)
def test_every_change_to_an_expected_field_is_a_difference(file: CaseFile):
    for case in file.cases:
        assert isinstance(case, ResourcesCase)
        for key, expected in case.expected_fields.items():
            if key.endswith("~"):
                continue
            answer = nested(key, "a text" if expected == "*" else expected)
            assert field_differences({key: expected}, answer) == []
            for changed in changes(expected):
                assert field_differences({key: changed}, answer), (case.id, key, changed)


@pytest.mark.parametrize("file", RESOURCES_FILES, ids=lambda file: file.label)
def test_every_change_to_an_expected_tool_result_is_a_difference(file: CaseFile):
    for case in file.cases:
        assert isinstance(case, ResourcesCase)
        for call in case.tool_calls:
            assert differences(call.result, call.result, TOOL) == []
            for answer in changes(call.result):
                added_only = is_superset(answer, call.result)
                assert added_only or differences(call.result, answer, TOOL), (case.id, answer)


def nested(key: str, value: Any) -> dict[str, Any]:
    for part in reversed(key.split(".")):
        value = {part: value}
    return value


def is_superset(answer: Any, expected: Any) -> bool:
    """Whether the answer only has members that the expectation does not name."""
    if isinstance(answer, dict) and isinstance(expected, dict):
        return expected.keys() <= answer.keys() and all(is_superset(answer[key], expected[key]) for key in expected)
    if isinstance(answer, list) and isinstance(expected, list):
        return len(answer) == len(expected) and all(map(is_superset, answer, expected))
    return type(answer) is type(expected) and answer == expected


def test_the_changes_are_changes():
    value = {"a": [1, {"b": None}], "c": "x", "d": False}
    original = copy.deepcopy(value)
    assert all(changed != original or repr(changed) != repr(original) for changed in changes(value))
    assert value == original
