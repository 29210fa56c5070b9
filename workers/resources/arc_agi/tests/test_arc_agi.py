"""What the recorded cases cannot say: hostile replies get a verdict, in time proportional to their length."""

import json
from typing import Any

import pytest
from gymq.workers.resources.arc_agi.worker import GridPuzzles, first_grid, last_grid

import gymq
from gymq.protocol.codec import encode
from gymq.protocol.messages import Verified
from gymq.testing import Harness, prompt, reply

LENGTH = 1_000_000


def row(**members: Any) -> dict[str, Any]:
    return {**prompt("Which grid?"), "expected_output": [[1, 2]], **members}


@pytest.mark.parametrize(
    "text",
    [
        "[" * LENGTH,
        "[ " * LENGTH,
        "]" * LENGTH,
        "[[" + "1," * LENGTH,
        "[[" + "] " * LENGTH,
        "[[1" + " ]" * LENGTH + "}",
        "\\boxed{[[" * (LENGTH // 9),
        "\\boxed{[[1" + "] " * LENGTH,
        "\\boxed{[[" + " " * LENGTH,
        "\\boxed{" + "[" * LENGTH + "]" * LENGTH + "}",
        "[[" + "9" * LENGTH + "]]",
    ],
    ids=lambda text: text[:14],
)
def test_long_texts_without_a_grid_are_read_once(text):
    assert first_grid(text) is None
    assert last_grid(text) is None


@pytest.mark.parametrize(
    ("text", "grid"),
    [
        ("[[1, 2]] and [[3]]", [[1, 2]]),
        ("[[1]], [[2]]", None),
        ("[[1]] [[2]] then [[3]]", [[3]]),
        ("\\boxed{[[1,]]} [[2]]", None),
        ("\\boxed{[[1,]]} \\boxed{[[2]]}", [[2]]),
        ("\\boxed{ [[1]]} [[2]]", [[1]]),
        ("\\Boxed{[[1]]} [[2]]", [[1]]),
        ("\\boxed{\\text{[[1]]}}", [[1]]),
        ("[[1], [2, 3], []]", [[1], [2, 3], []]),
        ("[[], [1]]", None),
        ("[[ ]]", None),
        ("[[]]", None),
        ("[[[1]]]", None),
        ("[[-1]]", None),
        ("[[1.5]]", None),
        ("[[01]]", None),
        ("[ [ 1 , 2 ]\t]", [[1, 2]]),
        ("[[١]]", None),
        ("\\boxed{[[١]]} [[1]]", None),
        ("[1, 2]", None),
    ],
)
def test_which_grid_counts_as_published(text, grid):
    assert first_grid(text) == grid


async def test_numbers_that_no_message_can_carry_are_given_as_text():
    digits = "1" * 30
    expected = [[-(10**30)]]
    async with Harness(GridPuzzles) as env:
        verdict = await env.verify(row(expected_output=expected), reply(f"\\boxed{{[[{digits}, 2]]}}"))
    assert verdict.reward == 0.0
    assert json.loads(verdict.fields["predicted_output"]) == [[int(digits), 2]]
    assert json.loads(verdict.fields["expected_output"]) == expected
    encode(Verified(reward=verdict.reward, verdict=verdict.fields))


async def test_without_an_expected_grid_nothing_scores():
    async with Harness(GridPuzzles) as env:
        verdict = await env.verify(prompt("Which grid?"), reply("\\boxed{[[1, 2]]}"))
    assert (verdict.reward, verdict.fields["predicted_output"]) == (0.0, [[1, 2]])


@pytest.mark.parametrize("grid", [None, "[[1]]", [1, 2], [["a"]], [[1.5]], [[None]]])
async def test_a_row_whose_grid_is_none_is_refused(grid):
    async with Harness(GridPuzzles) as env:
        with pytest.raises(gymq.InvalidTask, match="expected_output"):
            await env.verify(row(expected_output=grid), reply("\\boxed{[[1, 2]]}"))


async def test_a_grid_may_be_spread_over_two_parts_of_the_reply():
    async with Harness(GridPuzzles) as env:
        verdict = await env.verify(row(), reply("\\boxed{[[1,", "2]]}"))
    assert verdict.reward == 1.0


@pytest.mark.parametrize(
    ("text", "grid"),
    [
        ("[[1, 2]] becomes [[3]]", [[3]]),
        ("[[1]], [[2]]", [[2]]),
        ("input: [[1]]\noutput:\n```json\n[[2],\n [3]]\n```", [[2], [3]]),
        ("<think>[[9]]</think>\n[[2]]", [[2]]),
        ("<think>[[9]]", None),
        ("\\boxed{[[5]]} is wrong, so \\boxed{[[2]]}", [[2]]),
        ("\\boxed{[[5]]} since the input is [[1]]", [[5]]),
        ("\\boxed{\\text{no}} [[2]]", [[2]]),
        ("\\boxed {\n[[2]]\n}", [[2]]),
        ("[[2]] and [[1,]]", [[2]]),
        ("[[2]] and [[1.5]]", [[2]]),
        ("[[2, 3]]. Rows: [2, 3]", [[2, 3]]),
        ("[[[1]]]", None),
        ("[[ ]]", None),
        ("no grid", None),
    ],
)
def test_the_last_grid_counts(text, grid):
    assert last_grid(text) == grid
