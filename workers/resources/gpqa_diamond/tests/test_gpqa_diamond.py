"""What the recorded cases cannot say: each place for the letter by itself, and which one counts."""

from typing import Any

import pytest
from gymq.workers.resources.gpqa_diamond.rules import answer_line_letter, boxed_letter
from gymq.workers.resources.gpqa_diamond.worker import GpqaDiamond

import gymq
from gymq.testing import Harness, prompt, reply

PARTICLES = {"options": [{"A": "gluon"}, {"B": "photon"}, {"C": "W boson"}], "expected_answer": "C"}


def row(**members: Any) -> dict[str, Any]:
    return {**prompt("Which particle?"), **PARTICLES, **members}


async def letter(content: dict[str, Any], said: str, *, hardened: bool = True) -> tuple[float, str | None]:
    async with Harness(GpqaDiamond, {"hardened": hardened}) as env:
        verdict = await env.verify(content, reply(said))
    return verdict.reward, verdict.fields["extracted_answer"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("\\boxed{ C }", "C"),
        ("\\boxed{\\text{C}}", "C"),
        ("\\boxed{(C)}", "C"),
        ("\\boxed{A or C}", "C"),
        ("\\boxed{C: W boson}", "W"),
        ("\\boxed{c}", None),
        ("\\boxed{\u03a9}", "\u03a9"),
        ("\\boxed{ABC}", None),
        ("\\boxed{A} \\boxed{}", None),
        ("\\boxed{A} \\boxed{B", "A"),
        ("} \\boxed{B", None),
        ("\\boxed{B \\boxed{1}", "B"),
        ("C", None),
    ],
)
def test_the_letter_in_the_last_box(text, found):
    assert boxed_letter(text) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Answer: C", "C"),
        ("**Answer:** c", "C"),
        ("__ANSWER__ : *C*", "C"),
        ("Answer:\n\n\n\nC", "C"),
        ("Answer: C) text", "C"),
        ("Answer: a boson", "A"),
        ("Answer: A\nAnswer: B", "B"),
        ("Answer: A\nAnswer: boson", "A"),
        ("Answer: C\u00e9", "C"),
        ("Answer: C2", None),
        ("Answer: (C)", None),
        ("Answer: $C$", None),
        ("**Answer:** **C**", None),
        ("Answer***: C", None),
        ("Answers: C", None),
    ],
)
def test_the_letter_in_the_last_answer_line(text, found):
    assert answer_line_letter(text) == found


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("\\boxed{C}\nAnswer: A", (1.0, "C")),
        ("\\boxed{none}\nAnswer: c", (1.0, "C")),
        ("\\boxed{D}\nAnswer: C", (0.0, None)),
        ("Answer: D", (0.0, None)),
        ("", (0.0, None)),
    ],
)
async def test_as_published_a_box_counts_before_an_answer_line_even_if_its_letter_is_no_option(text, outcome):
    assert await letter(row(), text, hardened=False) == outcome


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("\\boxed{A}\nAnswer: C", "C"),
        ("Answer: A\nNo, it is charged: \\boxed{C}", "C"),
        ("\\boxed{E = mc^2}\n**Answer:** **(C)**", "C"),
        ("Answer: C\nwhere \\boxed{F = k x}", "C"),
        ("<think>Answer: C</think>Answer: A", "A"),
        ("<think>Answer: C", None),
        ("Answer: C\nAnswer: A or C", None),
        ("Answer: \\boxed{\\text{C}}", "C"),
        ("Answer: W boson", "C"),
        ("Answer: D", None),
        ("The answers: C", None),
    ],
)
async def test_the_last_place_that_chooses_an_option_counts(text, found):
    assert await letter(row(), text) == (float(found == "C"), found)


@pytest.mark.parametrize("options", [None, [], [{"C": None}]])
async def test_without_options_every_letter_can_be_chosen(options):
    assert await letter(row(options=options, expected_answer="z"), "Answer: Z") == (1.0, "Z")


async def test_a_pattern_of_the_row_comes_first():
    own = row(template_metadata={"output_regex": ["(", "Choice: (.*)"]})
    assert await letter(own, "\\boxed{A} Choice: w  BOSON") == (1.0, "C")
    assert await letter(own, "\\boxed{A} Choice: lepton") == (0.0, "A")


async def test_a_grading_mode_is_checked_and_changes_nothing():
    assert await letter(row(grading_mode="lenient_boxed"), "Answer: C") == (1.0, "C")
    with pytest.raises(gymq.InvalidTask):
        await letter(row(grading_mode="strict"), "Answer: C")
