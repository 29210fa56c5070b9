"""Token accounting over the calls of a rollout."""

from functools import reduce
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymq.responses.usage import add_usage


def usage(input_: int, output: int, total: int, cached: int | None = 0, reasoning: int | None = 0) -> dict[str, Any]:
    return {
        "input_tokens": input_,
        "input_tokens_details": {"cached_tokens": cached},
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": total,
    }


def test_the_first_call_is_counted_once() -> None:
    assert add_usage(None, usage(4, 2, 6, 1, 1)) == usage(4, 2, 6, 1, 1)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_call_without_usage_adds_nothing(place: int) -> None:
    turns: list[dict[str, Any] | None] = [usage(4, 2, 6), usage(5, 1, 6)]
    turns.insert(place, None)

    assert reduce(add_usage, turns, None) == usage(9, 3, 12)


def test_no_call_with_usage_is_no_usage() -> None:
    assert reduce(add_usage, [None, None], None) is None


@pytest.mark.parametrize("details", [{"cached_tokens": None}, {}, None])
def test_a_detail_that_is_unknown_counts_as_zero(details: Any) -> None:
    unknown = {**usage(1, 1, 2), "input_tokens_details": details}

    assert reduce(add_usage, [usage(4, 2, 6), unknown, usage(4, 2, 6)], None) == usage(9, 5, 14, 0, 0)


def test_the_given_usage_is_not_changed() -> None:
    first, second = usage(4, 2, 6), usage(1, 1, 2)

    add_usage(first, second)

    assert (first, second) == (usage(4, 2, 6), usage(1, 1, 2))


KNOWN = st.builds(usage, *[st.integers(0, 1000)] * 5)


@given(st.lists(KNOWN, min_size=1))
def test_every_number_is_the_plain_sum(turns: list[dict[str, Any]]) -> None:
    total = reduce(add_usage, turns, None)

    assert total is not None
    assert total["total_tokens"] == sum(turn["total_tokens"] for turn in turns)
    cached = sum(turn["input_tokens_details"]["cached_tokens"] for turn in turns)
    assert total["input_tokens_details"]["cached_tokens"] == cached
