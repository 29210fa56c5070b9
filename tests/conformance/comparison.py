"""How an answer is compared with what a case expects. The only place where the rules are written down as code.

There are three sets of rules:

* `CORE`: whole values of the core suites. Every member counts, a null member counts as absent.
* `FIELDS`: the fields of a verify answer that a resources case names. Equal, and nothing else.
* `TOOL`: what a tool of a resources worker answered. Only the members given count, numbers have a tolerance.

`differences` returns one sentence for each place where the two sides differ, so a failing case shows all of them.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Json = Any

REWARD_TOLERANCE = 1e-6
"""Absolute tolerance of a reward."""

ANY = "*"
"""Expected text that stands for any value but null, in rules that have the wildcard."""

_PLACEHOLDER = re.compile(r"<(rs|msg|resp)_\*>")
_LONGEST_SHOWN = 300
_ABSENT = object()


class Mismatch(AssertionError):
    """The answer differs from what the case expects; the message lists every difference."""

    def __init__(self, differences: list[str]) -> None:
        super().__init__("\n".join(differences))
        self.differences = differences


@dataclass(frozen=True)
class Rules:
    """One way of comparing two JSON values."""

    null_is_absent: bool = False
    """A member whose value is null counts as absent, on both sides and at every depth."""
    extra_members: bool = False
    """The answer may have members that are not expected."""
    wildcard: bool = False
    """The expected text `*` agrees with everything but null."""
    random_ids: bool = False
    """The expected text `<msg_*>` (also `rs`, `resp`) agrees with the prefix followed by hexadecimal digits."""
    json_text: bool = False
    """Two texts that both hold a JSON object or array are compared parsed."""
    float_tolerance: float = 0.0
    """Relative tolerance where a float is expected."""
    integer_tolerance: float = 0.0
    """Relative tolerance where an integer is expected."""


CORE = Rules(null_is_absent=True, random_ids=True, float_tolerance=1e-9)
FIELDS = Rules(wildcard=True)
TOOL = Rules(extra_members=True, wildcard=True, json_text=True, float_tolerance=1e-9, integer_tolerance=1e-9)


def differences(expected: Json, actual: Json, rules: Rules, path: str = "answer") -> list[str]:
    """Every place where `actual` differs from `expected` under `rules`, in the order of `expected`."""
    return list(_differences(expected, actual, rules, path))


def field_differences(expected: Mapping[str, Json], answer: Mapping[str, Json]) -> list[str]:
    """Compare the fields that a resources case names with a verify answer.

    `reward` has a tolerance of 1e-6. A dotted key addresses a nested field; a path that leads nowhere reads as null.
    A key ending in `~` holds a list of texts which must all occur in that field's text.
    """
    found: list[str] = []
    for key, wanted in expected.items():
        name = key.removesuffix("~")
        value = _field(answer, name)
        if key.endswith("~"):
            found += _missing_texts(wanted, value, name)
        elif value is _ABSENT:
            found.append(f"{name}: missing, expected {_show(wanted)}")
        elif name == "reward":
            found += reward_differences(wanted, value, name)
        else:
            found += differences(wanted, value, FIELDS, name)
    return found


def reward_differences(expected: Json, actual: Json, path: str) -> list[str]:
    """Compare two rewards with an absolute tolerance of 1e-6."""
    if _is_number(expected) and _is_number(actual) and abs(expected - actual) <= REWARD_TOLERANCE:
        return []
    return differences(expected, actual, FIELDS, path)


def tool_differences(expected: Json, actual: Json, path: str) -> list[str]:
    """Compare the answer of a tool; an answer that is text and parses as JSON stands for the parsed value."""
    return differences(expected, _parsed(actual), TOOL, path)


def list_differences(expected: list[Json], actual: list[Json], path: str) -> list[str]:
    """Compare objects sent to a component one by one: only the members given count, their values must be equal."""
    found = _length_difference(expected, actual, path)
    for index, (wanted, sent) in enumerate(zip(expected, actual, strict=False)):
        for key, value in wanted.items():
            place = f"{path}[{index}].{key}"
            if key not in sent:
                found.append(f"{place}: missing, expected {_show(value)}")
            else:
                found += differences(value, sent[key], FIELDS, place)
    return found


def mention_differences(mention: list[str], message: str) -> list[str]:
    """The texts that a refusal's message should hold but does not."""
    absent = [text for text in mention if text not in message]
    return [f"error: the message does not mention {_show(text)}: {_show(message)}" for text in absent]


def _differences(expected: Json, actual: Json, rules: Rules, path: str) -> Iterator[str]:
    if rules.wildcard and expected == ANY:
        if actual is None:
            yield f"{path}: expected any value, got null"
    elif isinstance(expected, dict) and isinstance(actual, dict):
        yield from _object_differences(expected, actual, rules, path)
    elif isinstance(expected, list) and isinstance(actual, list):
        yield from _length_difference(expected, actual, path)
        for index, (wanted, value) in enumerate(zip(expected, actual, strict=False)):
            yield from _differences(wanted, value, rules, f"{path}[{index}]")
    elif isinstance(expected, str) and isinstance(actual, str):
        yield from _text_differences(expected, actual, rules, path)
    elif not _same_scalar(expected, actual, rules):
        yield _unequal(expected, actual, path)


def _object_differences(expected: dict[str, Json], actual: dict[str, Json], rules: Rules, path: str) -> Iterator[str]:
    if rules.null_is_absent:
        expected = {key: value for key, value in expected.items() if value is not None}
        actual = {key: value for key, value in actual.items() if value is not None}
    for key, wanted in expected.items():
        if key in actual:
            yield from _differences(wanted, actual[key], rules, f"{path}.{key}")
        else:
            yield f"{path}.{key}: missing, expected {_show(wanted)}"
    if not rules.extra_members:
        for key in sorted(actual.keys() - expected.keys()):
            yield f"{path}.{key}: not expected, got {_show(actual[key])}"


def _text_differences(expected: str, actual: str, rules: Rules, path: str) -> Iterator[str]:
    if rules.random_ids and (placeholder := _PLACEHOLDER.fullmatch(expected)):
        if not re.fullmatch(placeholder[1] + "_[0-9a-f]+", actual):
            yield f"{path}: expected {placeholder[1]}_ and hexadecimal digits, got {_show(actual)}"
        return
    if rules.json_text:
        parsed = _container(expected), _container(actual)
        if None not in parsed:
            yield from _differences(*parsed, rules, path)
            return
    if expected != actual:
        yield _unequal(expected, actual, path)


def _same_scalar(expected: Json, actual: Json, rules: Rules) -> bool:
    if _is_number(expected) and _is_number(actual):
        if isinstance(expected, float) and math.isnan(expected):
            return isinstance(actual, float) and math.isnan(actual)
        tolerance = rules.float_tolerance if isinstance(expected, float) else rules.integer_tolerance
        return expected == actual or math.isclose(expected, actual, rel_tol=tolerance, abs_tol=0.0)
    return type(expected) is type(actual) and expected == actual


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _length_difference(expected: list[Json], actual: list[Json], path: str) -> list[str]:
    if len(expected) == len(actual):
        return []
    return [f"{path}: expected {len(expected)} elements, got {len(actual)}: {_show(actual)}"]


def _field(answer: Mapping[str, Json], name: str) -> Json:
    """The value of a possibly dotted name. A top-level field may be absent; a nested one that is absent is null."""
    first, *rest = name.split(".")
    if not rest:
        return answer.get(first, _ABSENT)
    value = answer.get(first)
    for part in rest:
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _missing_texts(texts: list[str], value: Json, name: str) -> list[str]:
    if not isinstance(value, str):
        return [f"{name}: expected text with {_show(texts)}, got {'nothing' if value is _ABSENT else _show(value)}"]
    return [f"{name}: {_show(text)} does not occur in {_show(value)}" for text in texts if text not in value]


def _parsed(value: Json) -> Json:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


def _container(text: str) -> Json:
    """The JSON object or array that the text holds, or None."""
    value = _parsed(text)
    return value if isinstance(value, dict | list) else None


def _unequal(expected: Json, actual: Json, path: str) -> str:
    return f"{path}: expected {_show(expected)}, got {_show(actual)}"


def _show(value: Json) -> str:
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."
