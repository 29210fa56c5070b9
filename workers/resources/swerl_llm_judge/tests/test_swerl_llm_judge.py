"""What the recorded cases cannot say: rows that do not fit, odd letters, hostile replies."""

from typing import Any

import pytest
from gymq.workers.resources.swerl_llm_judge.worker import PatchChoice, lenient_choice, strict_choice

import gymq
from gymq.testing import Harness, prompt, reply

ABC = {"A", "B", "C"}


def row(**members: Any) -> dict[str, Any]:
    options = [{"A": "one"}, {"B": "two"}, {"C": "three"}]
    return {**prompt("Which patch?"), "options": options, "expected_answer": "B", **members}


async def verdict(content: dict[str, Any], *said: Any) -> gymq.Verdict:
    async with Harness(PatchChoice) as env:
        return await env.verify(content, reply(*said))


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("<solution>B</solution>", "B"),
        ("<solution>\n [b \n</solution>", "B"),
        ("<solution>[[B]]</solution>", None),
        ("<solution>B.</solution> <solution>C</solution>", "C"),
        ("<solution>D</solution> <solution>C</solution>", None),
        ("<SOLUTION>B</SOLUTION>", None),
        ("<solution>\u0392</solution>", None),
        ("B", None),
    ],
)
def test_strict_takes_the_first_tag_with_a_letter_alone(text, letter):
    assert strict_choice(text, ABC) == letter


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("<Solution>Fix B</sOLUTION>", "B"),
        ("<solution>[[b]]</solution>", "B"),
        ("<solution>option_B</solution>", "B"),
        ("<solution>B2</solution>", "B"),
        ("<solution>I choose B</solution>", None),
        ("<solution>a good fix is B</solution>", "A"),
        ("<solution>\u00e9 B</solution>", None),
        ("<solution>B</solution> <solution></solution>", None),
        ("<solution>A</solution> <solution>B", "A"),
        ("<solution>ABC</solution>", None),
    ],
)
def test_lenient_takes_the_first_lone_letter_of_the_last_tag(text, letter):
    assert lenient_choice(text, ABC) == letter


@pytest.mark.parametrize("read", [strict_choice, lenient_choice])
@pytest.mark.parametrize("text", ["<solution>" * 200_000, "<solution>" + " " * 2_000_000, "</solution>" * 200_000])
def test_a_reply_made_to_take_long_is_read_in_one_pass(read, text):
    assert read(text, ABC) is None


async def test_a_tag_may_span_messages():
    assert (await verdict(row(), "<solution>", "B", "</solution>")).reward == 1.0


@pytest.mark.parametrize(
    ("expected", "shown"),
    [
        (" b ", "B"),
        (["b", "B", "C", "D", "AB", ""], ["B", "C"]),
        (["C"], "C"),
        ("D", []),
        ([], []),
        (None, []),
    ],
)
async def test_expected_letters_are_cleaned(expected, shown):
    found = await verdict(row(expected_answer=expected), "<solution>B</solution>")
    assert found.fields["expected_answer"] == shown
    assert found.reward == float("B" in shown)


async def test_without_options_nothing_can_be_chosen():
    found = await verdict(row(options=None), "<solution>B</solution>")
    assert (found.reward, found.fields["extracted_answer"], found.fields["expected_answer"]) == (0.0, None, "B")


async def test_only_the_first_field_of_an_option_is_its_letter():
    assert (await verdict(row(options=[{"A": "x", "B": "y"}]), "<solution>B</solution>")).reward == 0.0
    assert (await verdict(row(options=[{}, {"b": "y"}]), "<solution>B</solution>")).reward == 1.0


@pytest.mark.parametrize(
    ("members", "name"),
    [
        ({"options": [{"A": None}]}, "options"),
        ({"options": {"A": "x"}}, "options"),
        ({"expected_answer": 2}, "expected_answer"),
        ({"grading_mode": "kind"}, "grading_mode"),
    ],
)
async def test_a_row_that_does_not_fit_is_refused(members, name):
    with pytest.raises(gymq.InvalidTask, match=name):
        await verdict(row(**members), "<solution>B</solution>")
