"""What the recorded cases cannot say: each rule by itself, rows that do not fit, long replies, made rows."""

import logging
from typing import Any

import pytest
from gymq.workers.resources.ruler2.texts import last_paragraph, soft_match, text_score, without_documents
from gymq.workers.resources.ruler2.worker import AsAsked, Published, Ruler2, published_letter

import gymq
from gymq.testing import Harness, prompt, reply


def row(expected: Any, **members: Any) -> dict[str, Any]:
    return {**prompt("?"), "expected_answer": expected, **members}


async def verdict(content: dict[str, Any], said: str, **options: Any) -> gymq.Verdict:
    async with Harness(Ruler2, options) as env:
        return await env.verify(content, reply(said))


@pytest.mark.parametrize(
    ("text", "reference", "score"),
    [
        ("I know", "NO", 1.0),
        ("a b c d", "a x c d", 0.75),
        ("a b c d e", "a b c d", 1.0),
        ("x a b c d", "A  B C D", 0.75),
        ("a c d", "a b c d", 0.75),
        ("p q r s t", "a b c d", 0.0),
        ("p q r s t u v w x y z", "a b", 0.0),
        ("", "a b", 0.0),
        ("", "", 1.0),
        ("a", "  ", 0.0),
        ("a\n\tb", "a b", 1.0),
    ],
)
def test_a_text_and_a_reference_as_published(text, reference, score):
    assert soft_match(text, reference, Published().contains) == pytest.approx(score)


@pytest.mark.parametrize(
    ("text", "reference", "score"),
    [
        ("I know", "NO", 0.0),
        ("No!", "no", 1.0),
        ("It is **1234567890**", "1234567890", 1.0),
        ("1,234,567,890", "1234567890", 1.0),
        ("1111111111,2222222222", "2222222222", 1.0),
        ("It is 12345678901", "1234567890", 0.0),
        ("-1234567890", "1234567890", 0.0),
        ("1234567890.5", "1234567890", 0.0),
        ("Indiana", "India", 0.0),
        ("x A  B\nC", "a b c", 1.0),
        ("a b c d", "a x c d", 0.75),
        ("", "", 0.0),
    ],
)
def test_a_reference_stands_by_itself(text, reference, score):
    assert soft_match(text, reference, AsAsked().contains) == pytest.approx(score)


@pytest.mark.parametrize(
    ("said", "match_type", "reward"),
    [
        ("<think>Is it one?</think>\nIt is two", "all", 0.0),
        ("<think>Is it one?", "all", 0.0),
        ("<think>Is it two?</think>\nIt is one", "all", 1.0),
        ("two\n\none\n\n", "2steps", 1.0),
        ("two\n \none\n", "2steps", 1.0),
        ("one\n\t \ntwo", "2steps", 0.0),
        ("Document 1: one\n \nIt is two", "part", 0.0),
        ("Document 1: two\n \nIt is one", "part", 1.0),
    ],
)
async def test_blank_lines_and_thoughts(said, match_type, reward):
    assert (await verdict(row(["one"], match_type=match_type), said)).reward == reward


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("a Document 1: x\ny\n\nb", "a b"),
        ("Document 1: x\n\nDocument 22:\ny\n\n\nb", "\nb"),
        ("Document 1: x\ny", "Document 1: x\ny"),
        ("Document 1: x\n \ny", "Document 1: x\n \ny"),
        ("document 1: x\n\nb", "document 1: x\n\nb"),
        ("Document x: x\n\nb", "Document x: x\n\nb"),
        ("Document 1: Document 2: x\n\nb", "b"),
        ("Document 1:\n\nb", "b"),
    ],
)
def test_copied_documents_are_left_out(text, left):
    assert without_documents(text) == left


@pytest.mark.parametrize(("text", "last"), [("a\n\nb\n\nc", "c"), ("a\n\n", ""), ("a\nb", "a\nb"), ("", "")])
def test_the_last_paragraph(text, last):
    assert last_paragraph(text) == last


@pytest.mark.parametrize(("match_type", "reward"), [("all", 2 / 3), ("part", 1.0), ("2steps", 1 / 3)])
def test_ways_to_combine_references(match_type, reward):
    assert text_score("Document 1: b\n\na\n\nc", ["b", "c", "x"], match_type, Published().contains) == pytest.approx(
        reward
    )


def test_part_takes_the_best_reference_outside_of_documents():
    assert text_score("Document 1: b\n\nnothing", ["b"], "part", Published().contains) == 0.0


@pytest.mark.parametrize(
    ("expected", "said", "reward"),
    [
        ("one text", "here is one text", 1.0),
        (42, "it is 42", 1.0),
        ([1.0, True, None], "1.0 true none", 1.0),
        (None, "None", 1.0),
        ([], "anything", 0.0),
        ({"a": 1}, "{'a': 1}", 1.0),
    ],
)
async def test_references_of_any_kind(expected, said, reward):
    found = await verdict(row(expected), said)
    assert (found.reward, found.fields["extracted_answer"]) == (reward, None)


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("The final answer is B", "B"),
        ("The final answer is b", "B"),
        ("The final answer is \u062c", "C"),
        ("The final answer is x\uff24", "D"),
        ("The final answer is C or D.\nOr so", "D"),
        ("The final answer is A\nThe final answer is B\n\\boxed{C}", "B"),
        ("The final answer is ?", "?"),
        ("The final answer is nothing\n\\boxed{C}", None),
        ("The final answer is nothing\nAnswer: a", "A"),
        ("The Final answer is B", None),
        ("The final answer is \nB", None),
        ("\\boxed{A} then \\boxed{\\text{C}}", "C"),
        ("\\boxed{A} then \\boxed{C", None),
        ("\\boxed{A} then \\boxed {C}", None),
        ("\\boxed{A} then \\boxed C", None),
        ("\\boxed{ABC}", None),
        ("\\boxed{}\nAnswer: D", "D"),
        ("**Answer:** D", "D"),
        ("Answer: **C**", None),
        ("Answer: Ca", None),
        ("Answer: A\nAnswer: b)", "B"),
        ("", None),
    ],
)
def test_the_letter_as_published(text, letter):
    assert published_letter(text) == letter


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("The final answer is B", "B"),
        ("The final answer is (B).", "B"),
        ("**The final answer is:** B", "B"),
        ("The final answer is **b**", "B"),
        ("The Final Answer is\nB", "B"),
        ("The final answer is $\\boxed{\\textbf{B}}$.", "B"),
        ("The final answer is option B, because C is wrong.", "B"),
        ("The answer is not A. The final answer is B.", "B"),
        ("The final answer is \u0628", "B"),
        ("The final answer is A\nThe final answer is B", "B"),
        ("The final answer is A\nNo: \\boxed{B}", "B"),
        ("\\boxed{A} is wrong.\nAnswer: B", "B"),
        ("\\boxed {B}", "B"),
        ("\\boxed{A} then \\boxed{\\text{B}}", "B"),
        ("\\boxed{B) a cell}", "B"),
        ("Answer: **B**", "B"),
        ("Answer: (b)", "B"),
        ("<think>The final answer is A</think>Answer: B", "B"),
        ("Answer: B\nThe final answer is a matter of taste", "B"),
        ("The final answer is C or D.", None),
        ("The final answer is ?", None),
        ("\\boxed{A, B}", None),
        ("\\boxed{ABC}", None),
        ("<think>The final answer is B", None),
        ("B", None),
        ("", None),
    ],
)
def test_the_letter_in_whatever_dress(text, letter):
    assert AsAsked().letter(text) == letter


@pytest.mark.parametrize(
    ("expected", "reward"), [(" b ", 1.0), ("B", 1.0), (["B"], 0.0), (None, 0.0), ("C", 0.0), ("", 0.0)]
)
async def test_the_expected_letter(expected, reward):
    assert (await verdict(row(expected, eval_type="multichoice", match_type="any"), "Answer: B")).reward == reward


async def test_control_characters_are_replaced_only_in_what_is_returned():
    found = await verdict(row(["a\tb"]), " a\tb\x00c\x07 ")
    assert (found.reward, found.fields["predicted_answer"]) == (1.0, "a\nb\nc")


async def test_an_unknown_way_is_compared_as_texts_with_one_warning(caplog):
    async with Harness(Ruler2) as env:
        with caplog.at_level(logging.WARNING):
            for _ in range(2):
                assert (await env.verify(row("a", eval_type="other"), reply("a"))).reward == 1.0
    assert [record.message.partition(": ")[2] for record in caplog.records] == [
        "unknown eval_type 'other', compared as texts"
    ]


@pytest.mark.parametrize(
    "members",
    [{"match_type": "any"}, {"match_type": None}, {"eval_type": None}, {"task": 1}, {"length": "x"}],
)
async def test_a_row_that_does_not_fit_is_refused(members):
    with pytest.raises(gymq.InvalidTask):
        await verdict(row("a") | members, "a")


async def test_a_row_without_an_expected_answer_is_refused():
    with pytest.raises(gymq.InvalidTask, match="expected_answer"):
        await verdict(prompt("?"), "a")


async def test_made_rows_are_solved_by_their_references():
    wanted = gymq.RowsWanted(4, 0, 900, Ruler2.row_kinds, lambda text: len(text.split()))
    rows = list(Ruler2.make_rows(wanted))
    assert rows == list(Ruler2.make_rows(wanted))
    assert [len(one["expected_answer"]) for one in rows] == [1, 4, 1, 4]
    async with Harness(Ruler2) as env:
        for one in rows:
            assert 700 < one["length"] <= 900
            assert (await env.verify(one, reply(" ".join(one["expected_answer"])))).reward == 1.0
