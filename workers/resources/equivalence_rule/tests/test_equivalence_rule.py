"""What the recorded cases cannot say: long texts, time limits, options that do not fit."""

from dataclasses import replace
from typing import Any

import pytest
from gymq.workers.resources.equivalence_rule.worker import EquivalenceRule, normalised, ratio, weighted_ratio

import gymq
from gymq.testing import Harness, prompt, reply

SIMILAR = {"grading_rule": "seq_match"}
SLOW = "ab" * 500_000


def row(expected: Any) -> dict[str, Any]:
    return {**prompt("Repeat the text."), "expected_answer": expected}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (" To\u00a0The\t\n harbour ", "to the harbour"),
        ("a\u200bb", "a\u200bb"),
        ("STRASSE \u00df", "strasse \u00df"),
        ("", ""),
    ],
)
def test_case_and_white_space_do_not_matter_and_nothing_else(text, found):
    assert normalised(text) == found


@pytest.mark.parametrize(("one", "other", "share"), [("", "", 1.0), ("", "a", 0.0), ("abcd", "bcde", 0.75)])
def test_a_ratio_is_the_share_of_characters_that_match(one, other, share):
    assert ratio(one, other) == share


def test_the_order_of_the_texts_and_frequent_characters_matter():
    assert ratio("tide", "diet") != ratio("diet", "tide")
    assert ratio("-" + "ab" * 100, "ab" * 100) == 0.0
    assert ratio("-" + "ab" * 99, "ab" * 99) > 0.99


def test_beginnings_count_a_little_more():
    assert weighted_ratio("x", "") == pytest.approx(0.15)
    assert weighted_ratio("abcdefghij" + "x" * 10, "abcdefghij" + "y" * 10) == pytest.approx(0.85 * 0.5 + 0.15)


async def test_empty_texts_are_equal():
    async with Harness(EquivalenceRule) as env:
        assert (await env.verify(row(" "), reply())).reward == 1.0
        assert (await env.verify(row("a"), reply())).reward == 0.0


async def test_a_comparison_that_does_not_end_is_no_zero(monkeypatch):
    monkeypatch.setattr(EquivalenceRule, "compute_limits", replace(EquivalenceRule.compute_limits, cpu_s=0.5))
    async with Harness(EquivalenceRule, SIMILAR) as env:
        with pytest.raises(gymq.InvalidTask, match="nothing is known"):
            await env.verify(row("ab" * 90), reply(SLOW))


@pytest.mark.parametrize("expected", [4, None])
async def test_a_row_that_does_not_fit_is_refused(expected):
    async with Harness(EquivalenceRule) as env:
        with pytest.raises(gymq.InvalidTask):
            await env.verify(row(expected), reply("4"))


def test_an_unknown_rule_is_refused():
    with pytest.raises(gymq.OptionsError, match="grading_rule"):
        EquivalenceRule({"grading_rule": "fuzzy"})
