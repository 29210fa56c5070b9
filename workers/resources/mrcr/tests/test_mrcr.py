"""What the recorded cases cannot say: the prefix, the order of the texts, work that ends, made rows."""

import itertools
from difflib import SequenceMatcher
from typing import Any

import pytest
from gymq.workers.resources.mrcr.worker import SMALL, Mrcr

import gymq
from gymq.processes import ComputeLimits
from gymq.testing import Harness, prompt, reply


def row(expected: str, prefix: str = "k7", **members: Any) -> dict[str, Any]:
    texts = {"expected_answer": expected, "random_string_to_prepend": prefix}
    return {**prompt("?"), **texts, "n_needles": 2, "n_tokens": 100, **members}


async def verdict(content: dict[str, Any], said: str) -> gymq.Verdict:
    async with Harness(Mrcr) as env:
        return await env.verify(content, reply(said))


@pytest.mark.parametrize(
    ("expected", "prefix", "said", "reward"),
    [
        ("k7abc", "k7", "k7abc", 1.0),
        ("k7abc", "k7", "K7abc", 0.0),
        ("abc", "k7", "k7abc", 1.0),
        ("k7k7abc", "k7", "k7k7abc", 1.0),
        ("k7abc", "k7", "k7k7abc", 0.75),
        ("abc", "", "abc", 1.0),
        ("", "", "", 1.0),
        ("k7", "k7", "k7", 1.0),
        ("k7", "k7", "k7a", 0.0),
        ("k7abc ", "k7", "k7abc ", 6 / 7),
        (" k7abc", "k7", "k7abc", 6 / 9),
        (" kabc", " k", " kabc", 0.0),
        ("k abc", "k ", "k abc", 1.0),
        ("k abc", "k ", "k ", 0.0),
        ("k7\U0001f600b", "k7", "k7\U0001f600", 2 / 3),
    ],
)
async def test_prefix_and_ratio(expected, prefix, said, reward):
    found = await verdict(row(expected, prefix), said)
    assert found.reward == pytest.approx(reward)
    assert found.fields["seq_match_ratio"] == found.reward


async def test_the_answer_is_the_first_text():
    first, second = "tide", "diet"
    assert SequenceMatcher(None, first, second).ratio() != SequenceMatcher(None, second, first).ratio()
    assert (await verdict(row(second, ""), first)).reward == SequenceMatcher(None, first, second).ratio()


@pytest.mark.parametrize("length", [199, 200, 4000])
async def test_frequent_characters_begin_no_match_in_long_texts(length):
    expected = ("the lantern sways over the quay " * length)[:length]
    said = "x " + expected
    found = await verdict(row(expected, ""), said)
    assert found.reward == SequenceMatcher(None, said, expected).ratio()
    assert (found.reward > 0) == (length < 200)
    assert (len(said) * len(expected) > SMALL) == (length > 150)


async def test_a_comparison_without_end_gives_no_reward(monkeypatch):
    monkeypatch.setattr(Mrcr, "compute_limits", ComputeLimits(cpu_s=0.5, timeout_s=60.0))
    with pytest.raises(gymq.InvalidTask, match=r"could not be compared within 0\.5 s"):
        await verdict(row("ab" * 99, ""), "ba" * 400_000)


@pytest.mark.parametrize("member", ["expected_answer", "random_string_to_prepend", "n_needles", "n_tokens"])
async def test_a_row_without_a_field_is_refused(member):
    content = row("k7abc")
    del content[member]
    with pytest.raises(gymq.InvalidTask, match=member):
        await verdict(content, "k7abc")


async def test_made_conversations_are_as_long_as_they_may_be_and_ask_for_one_of_the_needles():
    wanted = gymq.RowsWanted(6, 3, 1500, Mrcr.row_kinds, lambda text: len(text.split()))
    rows = list(Mrcr.make_rows(wanted))
    assert rows == list(Mrcr.make_rows(wanted))
    assert [one["n_needles"] for one in rows] == [2, 4, 8, 2, 4, 8]
    async with Harness(Mrcr) as env:
        for one in rows:
            turns = one["responses_create_params"]["input"]
            question = turns[-1]["content"].split()
            request = f"Write a {' '.join(question[3 : question.index('word')])}."
            needles = [after["content"] for turn, after in itertools.pairwise(turns) if turn["content"] == request]
            assert len(needles) == one["n_needles"]
            asked = needles[int(question[2][:-2]) - 1]
            assert one["expected_answer"] == one["random_string_to_prepend"] + asked
            assert sum(len(turn["content"].split()) for turn in turns) == one["n_tokens"]
            assert 1350 < one["n_tokens"] <= 1500
            assert (await env.verify(one, reply(one["expected_answer"]))).reward == 1.0


def test_conversations_that_cannot_be_that_short_are_refused():
    with pytest.raises(gymq.OptionsError, match="8 needles: give at least"):
        list(Mrcr.make_rows(gymq.RowsWanted(1, 0, 50, ("8",), len)))
