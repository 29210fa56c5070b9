"""What the recorded cases cannot say: where the answer is, each spelling by itself, scores at their limits."""

from typing import Any

import pytest
from gymq.workers.resources.hotpotqa_qa.scores import (
    contains,
    exact_match,
    has_word,
    published_has_word,
    spellings_of,
    token_f1,
    unreliable,
)
from gymq.workers.resources.hotpotqa_qa.worker import HotpotQa, find_answer

import gymq
from gymq.testing import Harness, prompt, reply


def row(expected: Any) -> dict[str, Any]:
    return {**prompt("Which one?"), "expected_answer": expected}


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ('```\n{"answer": "a"}\n``` {"answer": "b"}', "a"),
        ('```json {"answer": "a"} ``` ```{"answer": "b"}```', "b"),
        ('```{"answer": "a"}``` ```{"other": "b"}```', "a"),
        ('```{"answer": {"b": 1}}```', "{'b': 1}"),
        ('```JSON\n{"answer": "a"}\n```', "a"),
        ('{"answer": "a"} {"answer": "b"} {b}', "b"),
        ('[{"answer": "a"}]', "a"),
        ('{"outer": {"answer": "a"}}', '{"outer": {"answer": "a"}}'),
        ('{"answer": "a"} { {"answer": "b"}', "a"),
        ('} {"answer": "a"}', "a"),
        ('{"answer": "}"}', '{"answer": "}"}'),
        ('{"\\u0061nswer": true}', "True"),
        ('{"answer": null}', "None"),
        ('{"answer": ""}', ""),
        ("", ""),
    ],
)
def test_where_the_answer_is(reply, answer):
    assert find_answer(reply) == answer


@pytest.mark.parametrize(
    ("expected", "spellings"),
    [
        ("The Red Sea", {"The Red Sea", "Red Sea"}),
        ('"Emma"', {'"Emma"', "Emma"}),
        ("Paris (France) (x)", {"Paris (France) (x)", "Paris", "France"}),
        ("Twenty-first", {"Twenty-first", "Twenty first", "21st"}),
        ("12", {"12", "twelve"}),
        ("21", {"21"}),
        ("1,234,567", {"1,234,567", "1234567"}),
        ("U.S.", {"U.S.", "U.S"}),
        ("no. 3.5.", {"no. 3.5.", "no. 3.5", "no 3.5."}),
        ("-5-6", {"-5-6"}),
        ("X & Y and Z and W", {"X & Y and Z and W", "X and Y and Z and W", "X & Y & Z and W"}),
        ("the the x", {"the the x", "the x"}),
        ("no", {"no"}),
        (" ", set()),
        ("\tA x-yz", {"A x-yz", "A x yz", "x-yz", "x yz"}),
        (' the lamp"', {'the lamp"', "the lamp", "lamp"}),
    ],
)
def test_the_spellings_of_an_expected_answer(expected, spellings):
    assert spellings_of(expected) == spellings


@pytest.mark.parametrize(
    ("answer", "expected", "found"),
    [
        ("It is Geneva", "geneva", (True, True)),
        ("nothing", "no", (True, False)),
        ("nothing, so no", "no", (True, True)),
        ("_no_", "no", (True, False)),
        ("x" * 40 + " Geneva" + "x" * 40, "Geneva", (True, False)),
        ("x" * 39 + " Geneva" + "x" * 40, "Geneva", (True, True)),
        ("x" * 60 + "Geneva", "Geneva", (True, True)),
        ("x\u2013y\u00a0z", "x-y z", (True, True)),
        ("1,234", "1234", (False, False)),
        ("", "", (False, False)),
    ],
)
def test_what_an_answer_contains(answer, expected, found):
    spellings = spellings_of(expected)
    assert (contains(answer, spellings), published_has_word(answer, spellings)) == found


@pytest.mark.parametrize(
    ("answer", "expected", "scores"),
    [
        ("the U.S.", "us", (1.0, 1.0)),
        ("", "", (1.0, 0.0)),
        ("yes it is", "yes", (0.0, 0.0)),
        ("red red blue", "red green", (0.0, 0.4)),
    ],
)
def test_exact_match_and_f1(answer, expected, scores):
    assert (exact_match(answer, expected), token_f1(answer, expected)) == scores


@pytest.mark.parametrize(
    ("expected", "reason"),
    [
        ("Grand Harbour Bridge.", "multi_word_name"),
        ("The Harbour Bridge", ""),
        ("Grand Harbour", ""),
        ("House of Lords in West London", "multi_word_name"),
        ("House of the lords in London", ""),
        ("x" * 41, "gt_too_long"),
        ("", ""),
    ],
)
def test_which_expected_answers_are_unreliable(expected, reason):
    assert unreliable(expected) == reason


@pytest.mark.parametrize("expected", [4, None])
async def test_a_row_that_does_not_fit_is_refused(expected):
    async with Harness(HotpotQa) as env:
        with pytest.raises(gymq.InvalidTask):
            await env.verify(row(expected), reply("4"))


async def test_an_empty_reply_has_no_answer():
    async with Harness(HotpotQa, {"report_filtered_metrics": False}) as env:
        verdict = await env.verify(row(""), reply(" "))
    assert (verdict.reward, verdict.fields["extracted_answer"], verdict.fields["answer_em"]) == (0.0, None, 1.0)


@pytest.mark.parametrize(
    ("answer", "expected", "reward"),
    [
        ("Yes.", "yes", 1.0),
        ("yes and no", "yes", 1.0),
        ("yes and no", "no", 0.0),
        ("no, yes", "yes", 0.0),
        ("Yes, there is no difference", "yes", 1.0),
        ("No. 5 and yes", "No. 5", 1.0),
    ],
)
async def test_yes_and_no_are_not_both_the_answer(answer, expected, reward):
    async with Harness(HotpotQa) as env:
        assert (await env.verify(row(expected), reply(f'{{"answer": "{answer}"}}'))).reward == reward


@pytest.mark.parametrize(
    ("expected", "answers", "others"),
    [
        (
            "India",
            ("India", "in India.", "India's capital", "(India)", "\u201cIndia\u201d"),
            ("Indiana", "Indianapolis", "British-India"),
        ),
        ("Niger", ("Niger", "the Niger", "Niger, Mali"), ("Nigeria", "Nigerian", "niger_delta", "Anniger")),
        ("45678", ("45678", "no. 45678.", "45,678", "(45678)"), ("9456781", "456789", "45678.5", "-45678", "1.45678")),
        ("Jean", ("Jean", "Jean d'Arc"), ("Jean-Paul", "Billie-Jean", "jeans")),
        ("1995", ("1995", "1990-1995", "in 1995."), ("19951", "1995.2", "-1995")),
        ("C++", ("C++", "in C++ today"), ("ABC++",)),
        ("Ann Lee", ("Ann Lee", "Ann Lee of York"), ("Joann Lee", "Ann Leeds")),
    ],
)
def test_a_spelling_is_no_part_of_a_longer_word_name_or_number(expected, answers, others):
    spellings = spellings_of(expected)
    assert [answer for answer in answers if not has_word(answer, spellings)] == []
    assert [answer for answer in others if has_word(answer, spellings)] == []


def test_a_spelling_begins_early_in_a_long_answer():
    assert has_word("x " * 10 + "India" + " y" * 40, {"India"})
    assert not has_word("x " * 30 + "India" + " y" * 40, {"India"})
