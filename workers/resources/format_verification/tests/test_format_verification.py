"""What the recorded cases cannot say: what a line and a marker are, patterns that do not end or do not compile."""

from dataclasses import replace
from typing import Any

import pytest
from gymq.workers.resources.format_verification.worker import FormatVerification, check_lines, check_markers

import gymq
from gymq.testing import Harness, prompt, reply


def row(kind: str = "regex", **members: Any) -> dict[str, Any]:
    return {**prompt("Make a list."), "verifier": {"type": kind, **members}}


@pytest.mark.parametrize(
    ("reply", "patterns", "count"),
    [
        ("- a\n- b", ["^- "], 2),
        ("- a - b\n", ["- ", "a"], 1),
        ("- a\r- b\u2028- c", ["^- "], 1),
        ("", ["^$"], 1),
        ("a\n", ["^$"], 1),
        ("A", ["a"], 0),
        ("a", [], 0),
    ],
)
def test_a_line_counts_once(reply, patterns, count):
    assert check_lines(reply, patterns, 0) == {"matching_lines": count, "min_matches": 0, "passed": True}


@pytest.mark.parametrize(
    ("reply", "expected", "patterns", "missing", "spurious"),
    [
        ("[1] [2] [2]", ["[1]"], [r"\[\d\]"], [], ["[2]", "[2]"]),
        ("[1]", ["[2]", "[1]", "[3]"], [], ["[2]", "[3]"], []),
        ("[1]", ["1"], [r"\[(\d)\]"], [], ["[1]"]),
        ("a\n[1]", ["a"], [r"^\[1\]"], [], []),
        ("[A]", ["[a]"], [], ["[a]"], []),
        ("ref:12", ["ref:1"], [], [], []),
        ("", [], [], [], []),
    ],
)
def test_what_is_missing_and_what_is_spurious(reply, expected, patterns, missing, spurious):
    passed = not missing and not spurious
    found = check_markers(reply, expected, patterns)
    assert found == {"expected": expected, "missing": missing, "spurious": spurious, "passed": passed}


VERIFIERS: list[tuple[dict[str, Any], float]] = [
    ({"kind": "inline_prose", "verify_regex": ["a"]}, 1.0),
    ({"verify_min_matches": "0"}, 1.0),
    ({}, 0.0),
    ({"verify_regex": ["a"], "patterns": ["("], "more": 1}, 1.0),
    ({"kind": "string_match", "verify_regex": ["("]}, 1.0),
]
REFUSED = [
    row("layout"),
    row(verify_regex=["(?i)a", "("]),
    row(verify_regex=["a{99999999999}"]),
    row(verify_regex=["(?L)a"]),
    row(verify_regex="a"),
    row(verify_min_matches=1.5),
    row("string_match", patterns=["["]),
    {**prompt("Make a list."), "verifier": {}},
]


async def test_what_belongs_to_another_type_is_ignored():
    async with Harness(FormatVerification) as env:
        rewards = [(await env.verify(row(**verifier), reply("a"))).reward for verifier, _ in VERIFIERS]
    assert rewards == [reward for _, reward in VERIFIERS]


async def test_a_row_that_does_not_fit_is_refused():
    async with Harness(FormatVerification) as env:
        for refused in REFUSED:
            with pytest.raises(gymq.InvalidTask):
                await env.verify(refused, reply("a"))


async def test_a_pattern_that_does_not_end_is_no_zero(monkeypatch):
    monkeypatch.setattr(FormatVerification, "compute_limits", replace(FormatVerification.compute_limits, cpu_s=0.5))
    async with Harness(FormatVerification) as env:
        with pytest.raises(gymq.InvalidTask, match="nothing is known"):
            await env.verify(row(verify_regex=["(a|a)*b"]), reply("a" * 60))
