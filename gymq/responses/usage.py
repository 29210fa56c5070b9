"""Token accounting of model calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Where providers put numbers that OpenAI reports in the nested details.
_CACHED_ALIASES = ("cached_tokens", "num_cached_tokens", "prompt_cache_hit_tokens", "cache_read_input_tokens")
_REASONING_ALIASES = ("reasoning_tokens",)


def add_usage(total: Mapping[str, Any] | None, turn: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Add the usage (Responses form, tokens) of one more model call to a rollout's; None while none was reported.

    A call without usage adds nothing. A detail that a call did not report counts as 0: clients expect a number.
    """
    if turn is None:
        return None if total is None else dict(total)
    turn_cached = _detail(turn, "input_tokens_details", "cached_tokens") or 0
    turn_reasoning = _detail(turn, "output_tokens_details", "reasoning_tokens") or 0
    if total is None:
        return _usage(turn["input_tokens"], turn_cached, turn["output_tokens"], turn_reasoning, turn["total_tokens"])
    return _usage(
        total["input_tokens"] + turn["input_tokens"],
        (_detail(total, "input_tokens_details", "cached_tokens") or 0) + turn_cached,
        total["output_tokens"] + turn["output_tokens"],
        (_detail(total, "output_tokens_details", "reasoning_tokens") or 0) + turn_reasoning,
        total["total_tokens"] + turn["total_tokens"],
    )


def with_known_details(usage: Mapping[str, Any]) -> dict[str, Any]:
    """Return a usage in Responses form whose details are numbers: OpenAI's classes refuse a null there."""
    cached = _detail(usage, "input_tokens_details", "cached_tokens") or 0
    reasoning = _detail(usage, "output_tokens_details", "reasoning_tokens") or 0
    return {
        **usage,
        "input_tokens_details": {"cached_tokens": cached},
        "output_tokens_details": {"reasoning_tokens": reasoning},
    }


def usage_from_chat(usage: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the usage of a chat completion in Responses form: the provider's total, null for unknown details."""
    if usage is None:
        return None
    cached = _detail(usage, "prompt_tokens_details", "cached_tokens")
    reasoning = _detail(usage, "completion_tokens_details", "reasoning_tokens")
    return _usage(
        usage["prompt_tokens"],
        _first(usage, _CACHED_ALIASES) if cached is None else cached,
        usage["completion_tokens"],
        _first(usage, _REASONING_ALIASES) if reasoning is None else reasoning,
        usage["total_tokens"],
    )


def _usage(input_: int, cached: int | None, output: int, reasoning: int | None, total: int) -> dict[str, Any]:
    return {
        "input_tokens": input_,
        "input_tokens_details": {"cached_tokens": cached},
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": total,
    }


def _detail(usage: Mapping[str, Any], details: str, name: str) -> int | None:
    nested = usage.get(details)
    return None if nested is None else nested.get(name)


def _first(usage: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    return next((usage[name] for name in names if usage.get(name) is not None), None)
