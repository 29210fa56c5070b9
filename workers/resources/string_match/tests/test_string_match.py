"""What the recorded cases cannot say: each form of an answer by itself, hostile replies, rows that do not fit."""

from typing import Any

import pytest
from gymq.workers.resources.string_match import comparison
from gymq.workers.resources.string_match.extraction import find_answer
from gymq.workers.resources.string_match.published import closeness, score
from gymq.workers.resources.string_match.worker import StringMatch

import gymq
from gymq.processes import ComputeLimits
from gymq.testing import Harness, prompt, reply


def row(expected: str, **members: Any) -> dict[str, Any]:
    return {**prompt("What is it?"), "expected_answer": expected, **members}


@pytest.mark.parametrize(
    ("text", "mode", "answer"),
    [
        ("Answer: a\nanswer\uff1a b", "final_answer", "b"),
        ("FINAL ANSWER :\n\n b. \nc", "final_answer", "b"),
        ("**Answer:** x", "final_answer", "** x"),
        ("Answer: ...", "final_answer", ""),
        ("Answer: a .", "final_answer", "a"),
        ("Answer: a. .", "final_answer", "a"),
        ("Answer: a\nAnswer:", "final_answer", "a"),
        ("\\boxed{a} no answer", "final_answer", "a"),
        ("\\boxed{a} and \\boxed{b", "boxed", "a"),
        ("\\boxed{f{x}}", "boxed", "f{x}"),
        ("\\boxed{ \\text{ \\text{a} } }", "boxed", "a"),
        ("\\boxed{\\text{a} and \\text{b}}", "boxed", "a} and \\text{b"),
        ("\\boxed {a}", "boxed", None),
        ("a\n b \n\n", "last_line", "b"),
        (" a\nb ", "full_response", "a\nb"),
        ("", "full_response", None),
    ],
)
def test_what_is_taken_for_the_answer_as_published(text, mode, answer):
    assert find_answer(text.strip(), mode) == answer


@pytest.mark.parametrize(
    ("answer", "expected", "reward"),
    [
        ("'Valletta'", "valletta!", 1.0),
        ("1e3", "1000.0", 1.0),
        ("inf", "infinity", 1.0),
        ("\\$ 5", "5", 1.0),
        ("1,234 men", "1234 men", 1.0),
        ("1,234,567", "1234567", 0.98),
        ("\\textbf{a}  b", "\\(a b\\)", 1.0),
        ("\\text{a", "a", 1.0),
        ("red; green, blue", "red, green; blue", 1.0),
        ("red and green", "red, green", 0.0),
        ("the colours orange and violet", "the colours orange , violet", 0.0),
        ("green, red", "red, green", 0.0),
        ("kg", "kg", 1.0),
        ("", "kg", 0.0),
        ("$$", "km", 0.0),
        ("\\text{}", "$", 0.0),
        ("mm", "kg", 0.0),
        ("Boise, Idaho", "boise ID", 1.0),
        ("west virginia", "WV", 1.0),
        ("Arkansas", "AR", 1.0),
        ("5 cm", "5 km", 0.98),
        ("x cm", "x", 1.0),
        ("90^{\\circ}", "90\u00b0", 0.98),
        ("x^{\\circ}", "x\u00b0", 1.0),
        ("50%", "50", 0.98),
        ("\u20ac 99.6", "100", 0.98),
        ("98", "100", 0.0),
        ("x\u00b2", "x^2", 0.0),
        ("\u221a2 m", "\\sqrt2", 1.0),
        ("1/2", "0.5", 0.0),
        ("1e-12", "0", 0.98),
        ("1e-10", "0", 0.0),
        ("nan", "1", 0.0),
        ("nan", "+nan", 1.0),
        ("-0", "0", 0.98),
        ("Valletta", "Valletta. ", 0.0),
        ("Valletta", " 'Valletta'", 0.0),
        ("a", "\\\\()a", 1.0),
        ("-1", "1", 0.0),
    ],
)
def test_what_counts_as_the_same_as_published(answer, expected, reward):
    assert score(answer, expected) == reward


def test_only_white_space_at_the_ends_is_forgiven_where_case_matters():
    assert score(" Co ", "Co", case_sensitive=True) == 1.0
    assert score("Co.", "Co", case_sensitive=True) == 0.0


@pytest.mark.parametrize("value", ["inf", "-inf", "nan", "1e308"])
def test_closeness_is_a_number(value):
    assert closeness(value, "-1e308") == 0.0
    assert closeness("1", value) == 0.0


async def test_an_empty_expected_answer_never_scores():
    async with Harness(StringMatch) as env:
        verdict = await env.verify(row(" "), reply("Answer: ..."))
    assert (verdict.reward, verdict.fields["extracted_answer"]) == (0.0, "")


async def test_an_answer_whose_marks_take_too_long_to_sort_is_wrong(monkeypatch):
    monkeypatch.setattr(StringMatch, "compute_limits", ComputeLimits(cpu_s=0.5, timeout_s=200.0))
    marks = "\u0301" * 50_000 + "\u0316" * 50_000
    async with Harness(StringMatch) as env:
        assert (await env.verify(row("a"), reply(f"Answer: a{marks}"))).reward == 0.0


async def test_a_long_answer_may_be_right():
    async with Harness(StringMatch) as env:
        assert (await env.verify(row("word " * 500), reply("Answer: " + "WORD  " * 500))).reward == 1.0


@pytest.mark.parametrize("member", [{"extraction_mode": "first_line"}, {"expected_answer": 4}, {"case_sensitive": "x"}])
async def test_a_row_that_does_not_fit_is_refused(member):
    async with Harness(StringMatch) as env:
        with pytest.raises(gymq.InvalidTask):
            await env.verify(row("a") | member, reply("Answer: a"))


SAME = (
    *(
        "{x}",
        "**{x}**",
        "*{x}*",
        "`{x}`",
        "\u201c{x}\u201d",
        "\u2018{x}\u2019",
        "\u00ab{x}\u00bb",
        '"{x}".',
        "{x}!",
        "${x}$",
    ),
    *(
        "\\({x}\\)",
        "\\text{{{x}}}",
        "\\boxed{{{x}}}",
        "\\boxed{{\\textbf{{{x}}}}}",
        "**\u201c{x}.\u201d**",
        "\u200b{x}\u200b",
        " {x} ",
    ),
)


@pytest.mark.parametrize(
    "line", ["Answer: {}", "**Answer:** {}", "**Answer**: {}", "ANSWER\uff1a\n\n{}\n", "Answer: a\nanswer: {}"]
)
@pytest.mark.parametrize("form", SAME)
async def test_the_dress_of_an_answer_does_not_matter(line, form):
    async with Harness(StringMatch) as env:
        for expected in ("Oslo", "-12", "New York City", "3.5 kg"):
            verdict = await env.verify(row(expected), reply(line.format(form.format(x=expected))))
            assert verdict.reward == 1.0, verdict


@pytest.mark.parametrize(
    ("answer", "expected", "reward"),
    [
        ("\u221212", "-12", 1.0),
        ("1970", "1969", 0.0),
        ("1,970", "1969", 0.0),
        ("1969.0", "1969", 1.0),
        ("7 cm", "7 km", 0.0),
        ("7 kilometres", "7 km", 1.0),
        ("7", "7 km", 0.98),
        ("7 km", "7", 1.0),
        ("7.1 km", "7 km", 0.0),
        ("50%", "50 percent", 1.0),
        ("50 kg", "50%", 0.0),
        ("\u20ac5", "$5", 0.0),
        ("$5", "5 dollars", 1.0),
        ("3.1416", "3.14159", 0.98),
        ("3.15", "3.14159", 0.0),
        ("9.8 m/s^2", "9.81 m/s\u00b2", 0.98),
        ("9.81 m", "9.81 m/s^2", 0.0),
        ("1,234,567", "1234567", 1.0),
        ("10\u00b2", "102", 0.0),
        ("x\u00b2", "x^2", 1.0),
        ("\u221a2", "\\sqrt{2}", 1.0),
        ("90\u00b0", "90^\\circ", 1.0),
        ("ham", "ha", 0.0),
        ("Boise, Idaho", "boise ID", 1.0),
        ("red; green", "red, green", 1.0),
        ("green, red", "red, green", 0.0),
        ("Indiana", "IN", 1.0),
        ("nan", "1", 0.0),
        ("", "kg", 0.0),
        ("$$", "km", 0.0),
        ("page 12", "page 13", 0.0),
        ("1e3", "1000", 1.0),
        ("1e9999", "1e9998", 0.0),
        ("-5", "5", 0.0),
        ("12:30", "12.30", 0.0),
        (".5", "0.5", 1.0),
        ("red and green", "red, green", 1.0),
        ("red, green, and blue", "red; green & blue", 1.0),
        ("red or green", "red and green", 0.0),
        ("Holl", "Holland", 0.0),
        ("5 meters per second", "5 m/s", 1.0),
        ("60 mph", "60 miles per hour", 1.0),
        ("60 kph", "60 mph", 0.0),
        ("5 square centimeters", "5 cm^2", 1.0),
        ("5 cubic centimeters", "5 cm^2", 0.0),
        ("20 degrees Celsius", "20°C", 1.0),
        ("20 degrees Fahrenheit", "20°C", 0.0),
    ],
)
def test_what_counts_as_the_same(answer, expected, reward):
    assert comparison.score(answer, expected) == reward


@pytest.mark.parametrize(
    "text", ["1," * 50_000, "{" * 50_000, "\\textbf{" * 20_000, "m/" * 30_000, "1 " + "m^2" * 10_000]
)
def test_long_answers_are_compared_in_linear_time(text):
    assert comparison.score(text, "7 km") == 0.0


async def test_an_answer_within_thoughts_is_none():
    async with Harness(StringMatch) as env:
        assert (await env.verify(row("Oslo"), reply("<think>Answer: Oslo"))).reward == 0.0
        assert (await env.verify(row("Oslo"), reply("<think>Answer: Rome</think>Answer: Oslo"))).reward == 1.0
