"""What the recorded cases cannot say: hostile replies, patterns that never end, time in proportion to the reply."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from gymq.workers.resources.mcqa import published
from gymq.workers.resources.mcqa.rules import letter_as_asked
from gymq.workers.resources.mcqa.worker import MultipleChoice

import gymq
from gymq.ext.text import Choices
from gymq.testing import Harness, prompt, reply

METALS = {"options": [{"A": "copper"}, {"B": "tin"}], "expected_answer": "B"}
CHOICES = Choices.of([{"A": "copper"}, {"B": "tin"}, {"C": "iron"}])


def row(**members: Any) -> dict[str, Any]:
    return {**prompt("Which metal?"), **METALS, **members}


async def test_a_pattern_that_does_not_end_finds_nothing(monkeypatch):
    monkeypatch.setattr(MultipleChoice, "compute_limits", replace(MultipleChoice.compute_limits, cpu_s=0.5))
    endless = row(template_metadata={"output_regex": "(a|a)*b"})
    async with Harness(MultipleChoice) as env:
        assert (await env.verify(endless, reply("a" * 60))).fields["extracted_answer"] is None
        assert (await env.verify(endless, reply("a" * 60 + "\\boxed{B}"))).fields["extracted_answer"] == "B"


async def test_a_pattern_that_the_machine_does_not_get_round_to_is_a_failure_and_no_zero(monkeypatch):
    monkeypatch.setattr(MultipleChoice, "compute_limits", replace(MultipleChoice.compute_limits, timeout_s=0.2))
    endless = row(template_metadata={"output_regex": "(a|a)*b"})
    async with Harness(MultipleChoice) as env:
        with pytest.raises(gymq.RolloutError) as caught:
            await env.verify(endless, reply("a" * 60))
    assert caught.value.failure_class is gymq.FailureClass.VERIFIER_FAILED


async def test_other_rows_are_verified_while_a_pattern_does_not_end(monkeypatch):
    monkeypatch.setattr(MultipleChoice, "compute_limits", replace(MultipleChoice.compute_limits, cpu_s=60.0))
    endless = row(template_metadata={"output_regex": "(a|a)*b"})
    async with Harness(MultipleChoice) as env:
        stuck = asyncio.ensure_future(env.verify(endless, reply("a" * 60)))
        verdict = await env.verify(row(), reply("\\boxed{B}"))
        assert verdict.reward == 1.0
        assert not stuck.done()
        stuck.cancel()


async def test_an_invalid_pattern_is_skipped():
    async with Harness(MultipleChoice) as env:
        verdict = await env.verify(row(template_metadata={"output_regex": "("}), reply("\\boxed{B}"))
    assert verdict.reward == 1.0


async def test_patterns_are_tried_in_order_until_one_finds_something():
    patterns = ["Choice: (\\d)", "Final: (\\w+)", "Guess: (\\w+)"]
    async with Harness(MultipleChoice) as env:
        verdict = await env.verify(row(template_metadata={"output_regex": patterns}), reply("Guess: A. Final: Tin"))
    assert verdict.fields["extracted_answer"] == "B"


async def test_without_an_expected_answer_nothing_scores():
    async with Harness(MultipleChoice) as env:
        verdict = await env.verify(row(expected_answer=None), reply("\\boxed{B}"))
    assert (verdict.reward, verdict.fields) == (0.0, {"expected_answer": "", "extracted_answer": "B"})


@pytest.mark.parametrize(
    "member",
    [
        {"grading_mode": "lenient_answer_colon_md"},
        {"expected_answer": 2},
        {"options": [{"A": 1}]},
        {"options": {"A": "x"}},
    ],
)
async def test_a_row_that_does_not_fit_is_refused(member):
    async with Harness(MultipleChoice) as env:
        with pytest.raises(gymq.InvalidTask):
            await env.verify(row(**member), reply("\\boxed{B}"))


def test_an_unknown_grading_mode_of_the_worker_is_refused():
    with pytest.raises(gymq.OptionsError, match="grading_mode"):
        MultipleChoice({"grading_mode": "strict"})


@pytest.mark.parametrize(
    ("box", "letter"),
    [
        ("\\boxed{[B]}", "B"),
        ("\\boxed{(B).}", "B"),
        ("\\boxed{ B : tin }", "B"),
        ("\\boxed{\\text{ \\text{B} }}", "B"),
        ("\\boxed{\\text{A} or \\text{B}}", None),
        ("\\boxed{\\text{B: tin} \\text{(Sn)}}", "B"),
        ("\\boxed{\\textbf{B}}", None),
        ("\\boxed{b}", None),
        ("\\boxed{D}", None),
        ("\\boxed{A B}", None),
        ("\\boxed{A} then \\boxed{B", None),
        ("\\boxed{}", None),
        ("B", None),
    ],
)
def test_strict_mode_as_published(box, letter):
    assert published.strict_boxed_letter(box, CHOICES) == letter


@pytest.mark.parametrize(
    ("box", "letter"),
    [
        ("\\boxed{B}", "B"),
        ("\\boxed{some  TIN}", "B"),
        ("\\boxed{\\text{pure tin}}", "B"),
        ("\\boxed{tin or iron}", None),
        ("\\boxed{lead}", None),
    ],
)
def test_lenient_boxed_mode_as_published(box, letter):
    assert published.boxed_letter(box, CHOICES) == letter


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("answer : b", "B"),
        ("Answer: \\text{Tin}", "B"),
        ("Answer: A\nAnswer: B", "A"),
        ("Answer:\n\nB\nor A", "B"),
        ("Answer:", None),
        ("Answer: the tin", None),
        ("B", None),
    ],
)
def test_answer_colon_mode_as_published(text, letter):
    assert published.answer_colon_letter(text, CHOICES) == letter


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("**Answer:** B", "B"),
        ("_Answer_: `b`", "B"),
        ("Answer: A\n**Answer**: (B) tin", "B"),
        ("Answer: A\nAnswer: who knows", "A"),
        ("Answer: A or B", None),
        ("Answer: A, B", None),
        ("Answer: A, or B", "A"),
        ("Answer: A or A", "A"),
        ("Answer\n: B", "B"),
        ("Answer***: B", None),
        ("Answer: B\u00e9", "B"),
        ("Answer: no\u0628", "B"),
        ("Answer: B, a metal", None),
        ("Answer: B b", "B"),
        ("Answer:\nB", "B"),
        ("Answer:\n\n\nB", None),
        ("Answer: a metal (B)", "A"),
        ("Answer: ب", "B"),
        ("Answer: Ｂ.", "B"),
        ("Answer: D", None),
    ],
)
def test_markdown_mode_as_published(text, letter):
    assert published.markdown_letter(text, CHOICES) == letter


def test_deeply_nested_wrappers_are_peeled_without_recursion():
    nested = "\\text{" * 20_000 + "B" + "}" * 20_000
    assert published.strict_boxed_letter("\\boxed{" + nested + "}", CHOICES) == "B"
    assert published.answer_colon_letter("Answer: " + nested, CHOICES) == "B"


@pytest.mark.parametrize(
    ("mode", "text", "found"),
    [
        ("strict_single_letter_boxed", "\\boxed{A} no: \\boxed {\\textbf{B}}", "B"),
        ("strict_single_letter_boxed", "\\boxed{B) C)}", None),
        ("strict_single_letter_boxed", "\\boxed{some tin}", None),
        ("strict_single_letter_boxed", "<think>\\boxed{B}</think>", None),
        ("lenient_boxed", "\\boxed{\\text{some tin}}", "B"),
        ("lenient_boxed", "\\boxed{tin or iron}", None),
        ("lenient_answer_colon", "Answer: A\nAnswer: **B**", "B"),
        ("lenient_answer_colon", "Answer: A\nAnswer: who knows", "A"),
        ("lenient_answer_colon_md", "**Answer:** a metal (B)", "B"),
        ("lenient_answer_colon_md", "Answer: A, or B", None),
        ("lenient_answer_colon_md", "B", None),
    ],
)
def test_the_letter_as_asked(mode, text, found):
    assert letter_as_asked(text, CHOICES, mode) == found
