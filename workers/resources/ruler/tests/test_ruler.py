"""What the recorded cases cannot say: each rule by itself, rows that do not fit, rows of any length from a seed."""

from typing import Any

import pytest
from gymq.workers.resources.ruler.fitting import largest_size
from gymq.workers.resources.ruler.generate import TASKS, TEMPLATE_TOKENS
from gymq.workers.resources.ruler.worker import SUBSETS, Ruler

import gymq
from gymq.testing import Harness, prompt, reply


def row(subset: str = "vt", outputs: Any = ("abc",), **members: Any) -> dict[str, Any]:
    outputs = list(outputs) if isinstance(outputs, tuple) else outputs
    return {**prompt("?"), "outputs": outputs, "length": 4096, "subset": subset, **members}


async def verdict(content: dict[str, Any], *said: Any, **options: Any) -> gymq.Verdict:
    async with Harness(Ruler, options) as env:
        return await env.verify(content, reply(*said))


@pytest.mark.parametrize(
    ("subset", "outputs", "said", "reward"),
    [
        ("vt", ("abc",), "xABCx", 1.0),
        ("vt", ("12",), "3123", 1.0),
        ("vt", ("a", "a", "b"), "a", 2 / 3),
        ("vt", ("", "b"), "a", 0.5),
        ("vt", (" a",), "a", 0.0),
        ("vt", ("a ",), " a  ", 0.0),
        ("vt", ("ss",), "\u00df", 0.0),
        ("vt", ("\u0130",), "i\u0307", 1.0),
        ("qa_1", ("a", "b"), "b", 1.0),
        ("qa_2", ("a", "b"), "c", 0.0),
        ("qa_2", ("", "b"), "c", 1.0),
        ("QA_1", ("a", "b"), "b", 0.5),
        ("qa_1 ", ("a", "b"), "b", 0.5),
        ("unknown", ("a", "b"), "b", 0.5),
    ],
)
async def test_references_in_the_reply_as_published(subset, outputs, said, reward):
    assert (await verdict(row(subset, outputs), said, hardened=False)).reward == pytest.approx(reward)


@pytest.mark.parametrize(
    ("subset", "outputs", "said", "reward"),
    [
        ("niah_single_1", ("4827193",), "The number is 4827193.", 1.0),
        ("niah_single_1", ("4827193",), "**4,827,193**", 1.0),
        ("niah_single_1", ("4827193",), "14827193", 0.0),
        ("niah_single_1", ("4827193",), "48271935", 0.0),
        ("niah_single_1", ("4827193",), "4827193.25", 0.0),
        ("niah_single_1", ("4827193",), "id4827193", 0.0),
        ("niah_single_1", ("4827193",), "<think>4827193?</think>I do not know.", 0.0),
        ("niah_single_1", ("4827193",), "<think>Maybe 4827193", 0.0),
        ("niah_single_1", ("4827193",), "<think>1111111?</think>4827193", 1.0),
        ("niah_single_3", ("0a1b2c3d-0000-4000-8000-00000000000f",), "0A1B2C3D\u20110000-4000-8000-00000000000F", 1.0),
        ("niah_single_3", ("0a1b2c3d-0000-4000-8000-00000000000f",), "0a1b2c3d-0000-4000-8000-00000000000f7", 0.0),
        ("niah_multivalue", ("1112223", "4445556"), "1112223,4445556", 1.0),
        ("niah_multivalue", ("1112223", "4445556"), "11122234445556", 0.0),
        ("niah_multivalue", ("1112223", "4445556"), '["1112223", 44455567]', 0.5),
        ("vt", ("QWERT", "ASDFG"), "qwert, `ASDFG`", 1.0),
        ("vt", ("QWERT", "ASDFG"), "_QWERT_ ASDFGH", 0.5),
        ("vt", ("QWERT", "ASDFG"), "QWERTASDFG", 0.0),
        ("vt", ("", "b"), "b", 0.5),
        ("cwe", ("art", "cart"), "1. cart 2. party", 0.5),
        ("cwe", ("well", "known"), "1. well-known", 0.0),
        ("fwe", ("abcdef",), "abcdefg", 0.0),
        ("qa_1", ("no",), "I know", 0.0),
        ("qa_1", ("no",), "No.", 1.0),
        ("qa_2", ("India",), "It is Indiana", 0.0),
        ("qa_2", ("New York", "NYC"), "in New\nYork", 1.0),
        ("qa_2", ("", "b"), "c", 0.0),
    ],
)
async def test_references_stand_by_themselves_behind_the_thoughts(subset, outputs, said, reward):
    assert (await verdict(row(subset, outputs), said)).reward == pytest.approx(reward)


async def test_all_text_is_searched_whatever_its_role_and_form():
    said = [
        {"type": "message", "role": "user", "content": "ab"},
        {"type": "message", "role": "assistant", "content": "c"},
    ]
    assert (await verdict(row(), *said, hardened=False)).reward == 1.0


@pytest.mark.parametrize("subset", SUBSETS)
async def test_the_field_of_a_known_subset(subset):
    assert (await verdict(row(subset), "abc")).fields == {subset: 1.0}


@pytest.mark.parametrize("subset", ["reward", "outputs", "response", "niah", ""])
async def test_another_subset_has_no_field(subset):
    found = await verdict(row(subset), "abc")
    assert (found.reward, found.fields) == (1.0, {})


@pytest.mark.parametrize(
    "members",
    [{"outputs": []}, {"outputs": "abc"}, {"outputs": [1]}, {"length": "x"}, {"length": 1.5}, {"subset": None}],
)
async def test_a_row_that_does_not_fit_is_refused(members):
    with pytest.raises(gymq.InvalidTask):
        await verdict(row() | members, "abc")


@pytest.mark.parametrize("length", ["4096", 4096.0])
async def test_a_length_may_be_a_text_or_a_whole_float(length):
    assert (await verdict(row(length=length), "abc")).reward == 1.0


def wanted(tokens: int, kinds: tuple[str, ...] = Ruler.row_kinds, seed: int = 0, count: int = 11) -> gymq.RowsWanted:
    return gymq.RowsWanted(count, seed, tokens, kinds, lambda text: len(text.split()))


@pytest.mark.parametrize("tokens", [1500, 6000])
async def test_rows_are_as_long_as_they_may_be_and_their_references_solve_them(tokens):
    rows = list(Ruler.make_rows(wanted(tokens)))
    assert [one["subset"] for one in rows] == list(TASKS)
    async with Harness(Ruler) as env:
        for one in rows:
            assert 0.6 * tokens < one["length"] <= tokens - TEMPLATE_TOKENS
            assert (await env.verify(one, reply(", ".join(one["outputs"])))).reward == 1.0
            assert (await env.verify(one, reply("I do not know."))).reward == 0.0


def test_a_seed_gives_the_same_rows_and_another_one_others():
    rows = list(Ruler.make_rows(wanted(1500, count=22)))
    assert rows == list(Ruler.make_rows(wanted(1500, count=22)))
    others = list(Ruler.make_rows(wanted(1500, count=22, seed=1)))
    assert all(one["outputs"] != other["outputs"] for one, other in zip(rows, others, strict=True))
    assert rows[0]["outputs"] != rows[11]["outputs"]


def test_only_the_values_of_queried_keys_are_references():
    (one,) = Ruler.make_rows(wanted(1500, ("niah_multikey_1",), count=1))
    text = one["responses_create_params"]["input"][0]["content"]
    assert len(one["outputs"]) == 1
    assert text.count("A secret number of ") == 4


def test_ranks_two_to_four_are_the_most_frequent_invented_words():
    (one,) = Ruler.make_rows(wanted(3000, ("fwe",), count=1))
    words = one["responses_create_params"]["input"][0]["content"].split("\n\n")[1].split()
    assert sorted(set(words) - {"..."}, key=words.count, reverse=True)[:3] == one["outputs"]


def test_rows_that_cannot_be_that_short_are_refused():
    with pytest.raises(gymq.OptionsError, match="niah_multikey_1: no prompt is that short"):
        list(Ruler.make_rows(wanted(100, ("niah_multikey_1",))))


@pytest.mark.parametrize(("limit", "size"), [(10, 5), (14, 5), (15, 5), (20, 10), (1000, 500)])
def test_the_largest_size_that_fits(limit, size):
    assert largest_size(lambda units: 2 * units, limit, 5) == size
