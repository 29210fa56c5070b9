"""The types that the right side of an override can have."""

import contextlib
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymq.config import ConfigError
from gymq.config.values import parse_value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("-3", -3),
        ("1_000", 1000),
        ("0.5", 0.5),
        (".5", 0.5),
        ("1e-4", 1e-4),
        ("inf", math.inf),
        ("true", True),
        ("False", False),
        ("null", None),
        ("", ""),
        ("text", "text"),
        ("two words", "two words"),
        ("  padded  ", "padded"),
        ("???", "???"),
        ("c/model.yaml", "c/model.yaml"),
        ("http://host:80/v1?a=1&b=2", "http://host:80/v1?a=1&b=2"),
        ("aGk=", "aGk="),
        ("it's", "it's"),
    ],
)
def test_unquoted_text_has_the_type_it_looks_like(text, value):
    parsed = parse_value(text)
    assert (parsed, type(parsed)) == (value, type(value))


@pytest.mark.parametrize("text", ["yes", "no", "on", "off", "010", "0x10", "12:30:45", "2024-01-01", "~", "1.2.3"])
def test_what_only_yaml_takes_for_something_else_is_text(text):
    assert parse_value(text) == text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("'3'", "3"),
        ('"true"', "true"),
        ("'null'", "null"),
        ("''", ""),
        ("'a, b'", "a, b"),
        ("' padded '", " padded "),
        ('"[x]"', "[x]"),
        (r"'it\'s'", "it's"),
        (r"'C:\dir\new'", r"C:\dir\new"),
        (r"'ends in \\'", "ends in \\"),
        (r"'a\\b'", r"a\\b"),
    ],
)
def test_quoted_text_stays_text(text, value):
    assert parse_value(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[]", []),
        ("[1,two,'th,ree',null,true]", [1, "two", "th,ree", None, True]),
        ("[ [1], [2, 3] ]", [[1], [2, 3]]),
        ("[a b, c]", ["a b", "c"]),
        ("{}", {}),
        ("{a:1}", {"a": 1}),
        ("{a: 1, b: {c: [x, y]}, 'd e': http://h:80/v1}", {"a": 1, "b": {"c": ["x", "y"]}, "d e": "http://h:80/v1"}),
        ("[{a: 1}, {b: 2}]", [{"a": 1}, {"b": 2}]),
    ],
)
def test_lists_and_mappings(text, value):
    assert parse_value(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${a.b}", "${a.b}"),
        ("http://${host}:${port}/v1", "http://${host}:${port}/v1"),
        ("${oc.env:NAME,a b}", "${oc.env:NAME,a b}"),
        ("[${a},${oc.env:X,y}]", ["${a}", "${oc.env:X,y}"]),
        ("{a: ${b}}", {"a": "${b}"}),
        ("${inherit_from:NVIDIA-Nano-30B}", "${inherit_from:NVIDIA-Nano-30B}"),
    ],
)
def test_interpolations_are_left_for_later(text, value):
    assert parse_value(text) == value


@pytest.mark.parametrize(("text", "value"), [(r"a\,b", "a,b"), (r"\[x\]", "[x]"), (r"[a\,b, c]", ["a,b", "c"])])
def test_a_backslash_takes_the_meaning_from_a_character(text, value):
    assert parse_value(text) == value


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a,b", "has a comma"),
        ("[a,b", r"',' or '\]' is missing"),
        ("{a: 1", "',' or '}' is missing"),
        ("{a}", "':' is missing"),
        ("[a,]", "a value is missing before ']'"),
        ("{:1}", "a value is missing before ':'"),
        ("'never closed", "closing ' is missing"),
        ("'a' b", "follows a complete value"),
        ("[a]]", "follows a complete value"),
        ("${a", "closing } of"),
        ("{null: 1}", "a key of a mapping"),
        ("range(3)", "looks like a function call"),
        ("[" * 5000, "nested too deeply"),
        ("9" * 5000, "too many digits"),
    ],
)
def test_what_is_wrong_with_a_malformed_value(text, problem):
    with pytest.raises(ConfigError, match=problem):
        parse_value(text)


@given(st.text(alphabet="ab01 .,:=-+_\\'\"[]{}()$~?\n\té", max_size=30))
def test_any_text_is_a_value_or_a_config_error(text):
    with contextlib.suppress(ConfigError):
        parse_value(text)


def written(value):
    """Write a value the way one writes it on the command line."""
    match value:
        case None | bool():
            return str(value).lower().replace("none", "null")
        case str():
            # Every run of backslashes is doubled where a quote follows, and quotes are escaped.
            return "'" + re.sub(r"(\\*)('|\Z)", lambda found: found[1] * 2 + ("\\'" if found[2] else ""), value) + "'"
        case list():
            return f"[{', '.join(map(written, value))}]"
        case dict():
            return "{" + ", ".join(f"{written(key)}: {written(item)}" for key, item in value.items()) + "}"
    return repr(value)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=10,
    )
)
def test_every_value_can_be_written(value):
    assert parse_value(written(value)) == value
