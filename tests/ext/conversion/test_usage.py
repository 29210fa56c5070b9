"""The usage of chat completions in Responses form."""

from typing import Any

import pytest

from gymq.ext.conversion.usage import usage_from_chat

CHAT = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 11}


def usage(input_: int, output: int, total: int, cached: int | None = 0, reasoning: int | None = 0) -> dict[str, Any]:
    return {
        "input_tokens": input_,
        "input_tokens_details": {"cached_tokens": cached},
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": total,
    }


def test_the_total_of_a_chat_completion_is_the_one_reported() -> None:
    assert usage_from_chat(CHAT) == usage(7, 3, 11, None, None)


def test_details_of_a_chat_completion_are_read() -> None:
    nested = {"prompt_tokens_details": {"cached_tokens": 5}, "completion_tokens_details": {"reasoning_tokens": 0}}

    assert usage_from_chat({**CHAT, **nested}) == usage(7, 3, 11, 5, 0)


@pytest.mark.parametrize("alias", ["cached_tokens", "prompt_cache_hit_tokens", "cache_read_input_tokens"])
def test_cached_tokens_are_found_under_the_names_providers_use(alias: str) -> None:
    assert usage_from_chat({**CHAT, alias: 5, "prompt_tokens_details": None}) == usage(7, 3, 11, 5, None)


def test_reasoning_tokens_are_found_at_the_top() -> None:
    assert usage_from_chat({**CHAT, "reasoning_tokens": 2}) == usage(7, 3, 11, None, 2)


def test_reasoning_that_is_counted_apart_is_output() -> None:
    given = {"prompt_tokens": 32, "completion_tokens": 9, "total_tokens": 135}
    details = {"completion_tokens_details": {"reasoning_tokens": 94}}

    assert usage_from_chat({**given, **details}) == usage(32, 103, 135, None, 94)


def test_no_usage_stays_none() -> None:
    assert usage_from_chat(None) is None
