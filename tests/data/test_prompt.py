import json
from typing import Any

import pytest

from gymq.data.jsonl import parse_object
from gymq.data.prompt import RowPrompt
from gymq.data.rows import RowError
from gymq.errors import UsageError


def filled(template: str, **row: Any) -> str:
    return RowPrompt(user=template).messages(parse_object(json.dumps(row).encode()))[0]["content"]


def test_the_system_message_comes_first() -> None:
    template = RowPrompt.from_yaml("user: 'Q: {q}'\nsystem: Short.\n", "p.yaml")
    assert template.messages(parse_object(b'{"q": "why?"}')) == [
        {"role": "system", "content": "Short."},
        {"role": "user", "content": "Q: why?"},
    ]


@pytest.mark.parametrize(
    ("template", "row", "text"),
    [
        ("{n}", {"n": 3}, "3"),
        ("{x:.2f}", {"x": 1.2345}, "1.23"),
        ("{x!r:>5}", {"x": "a"}, "  'a'"),
        ("{x:{width}}|", {"x": "a", "width": 3}, "a  |"),
        ("{{x}}", {}, "{x}"),
        ("{choices[1]}", {"choices": ["a", "b"]}, "b"),
        ("{meta[level]}", {"meta": {"level": 5}}, "5"),
        ("{flag} {nothing}", {"flag": True, "nothing": None}, "True None"),
        ("{words}", {"words": ["a", 1]}, "['a', 1]"),
    ],
)
def test_fields_are_filled_as_python_formats_them(template: str, row: dict[str, Any], text: str) -> None:
    assert filled(template, **row) == text


@pytest.mark.parametrize(
    ("template", "row", "reason"),
    [
        ("{q}", {"p": 1}, r"names the field 'q', but the row only has \['p'\]"),
        ("{q.__class__}", {"q": "x"}, r"the field \{q\.__class__\}"),
        ("{q[0].real}", {"q": [1]}, r"the field \{q\[0\]\.real\}"),
        ("{}", {"q": "x"}, "names the field"),
        ("{q[1]}", {"q": [1]}, r"the row has nothing at \[1\]"),
        ("{q[a]}", {"q": "text"}, r"the row has nothing at \[a\]"),
        ("{q:d}", {"q": "text"}, "cannot be filled from the row"),
        ("{q:>3}", {"q": None}, "cannot be filled from the row"),
        ("{q!x}", {"q": "text"}, "cannot be filled from the row"),
    ],
)
def test_a_field_that_cannot_be_filled_is_refused(template: str, row: dict[str, Any], reason: str) -> None:
    with pytest.raises(RowError, match=reason):
        filled(template, **row)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("system: only", "user"),
        ("- a\n- b", "must be a mapping"),
        ("", "must be a mapping"),
        ("user: 5", "user"),
        ("user: 'half {open'", "user"),
        ("user: a\n b: [", r"p\.yaml:2: the prompt template is not valid YAML"),
        ("user: 2024-13-45", "month must be in 1"),
        ("user: !!int many", "is not what it looks like"),
        ("user: " + 3000 * "[", "is not what it looks like"),
    ],
)
def test_a_file_that_is_no_template_is_refused(text: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason) as refusal:
        RowPrompt.from_yaml(text, "p.yaml")
    assert str(refusal.value).startswith("p.yaml")
