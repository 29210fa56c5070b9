"""Token accounting of model calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def add_usage(total: Mapping[str, Any] | None, turn: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Add the usage (Responses form, tokens) of one more model call to a rollout's; None while none was reported.

    A call without usage adds nothing. A detail that a call did not report counts as 0: clients expect a number.
    """
    if turn is None:
        return None if total is None else dict(total)
    calls = [turn] if total is None else [total, turn]
    return usage_object(
        sum(call["input_tokens"] for call in calls),
        sum(map(cached_tokens, calls)),
        sum(call["output_tokens"] for call in calls),
        sum(map(reasoning_tokens, calls)),
        sum(call["total_tokens"] for call in calls),
    )


def cached_tokens(usage: Mapping[str, Any]) -> int:
    """Return how many input tokens of a usage in Responses form came from a cache; 0 if not reported."""
    return usage_detail(usage, "input_tokens_details", "cached_tokens") or 0


def reasoning_tokens(usage: Mapping[str, Any]) -> int:
    """Return how many output tokens of a usage in Responses form were reasoning; 0 if not reported."""
    return usage_detail(usage, "output_tokens_details", "reasoning_tokens") or 0


def usage_object(input_: int, cached: int | None, output: int, reasoning: int | None, total: int) -> dict[str, Any]:
    """Return a usage in Responses form, in tokens; None: the number is unknown."""
    return {
        "input_tokens": input_,
        "input_tokens_details": {"cached_tokens": cached},
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": total,
    }


def usage_detail(usage: Mapping[str, Any], details: str, name: str) -> int | None:
    """Return a number of tokens in the details of a usage; None: it is not reported."""
    nested = usage.get(details)
    return None if nested is None else nested.get(name)
