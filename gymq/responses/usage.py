"""Token accounting of model calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Where providers put the number that OpenAI reports in the nested details.
_CACHED_ALIASES = ("cached_tokens", "num_cached_tokens", "prompt_cache_hit_tokens", "cache_read_input_tokens")


def add_usage(total: Mapping[str, Any] | None, turn: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Add the usage (Responses form, tokens) of one more model call to a rollout's; None while none was reported.

    A call without usage adds nothing. A detail that a call did not report counts as 0: clients expect a number.
    """
    if turn is None:
        return None if total is None else dict(total)
    calls = [turn] if total is None else [total, turn]
    return _usage(
        sum(call["input_tokens"] for call in calls),
        sum(map(cached_tokens, calls)),
        sum(call["output_tokens"] for call in calls),
        sum(map(reasoning_tokens, calls)),
        sum(call["total_tokens"] for call in calls),
    )


def cached_tokens(usage: Mapping[str, Any]) -> int:
    """Return how many input tokens of a usage in Responses form came from a cache; 0 if not reported."""
    return _detail(usage, "input_tokens_details", "cached_tokens") or 0


def reasoning_tokens(usage: Mapping[str, Any]) -> int:
    """Return how many output tokens of a usage in Responses form were reasoning; 0 if not reported."""
    return _detail(usage, "output_tokens_details", "reasoning_tokens") or 0


def usage_from_chat(usage: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the usage of a chat completion in Responses form: the provider's total, null for unknown details."""
    if usage is None:
        return None
    cached = _detail(usage, "prompt_tokens_details", "cached_tokens")
    reasoning = _detail(usage, "completion_tokens_details", "reasoning_tokens")
    reasoning = usage.get("reasoning_tokens") if reasoning is None else reasoning
    prompt, output, total = usage["prompt_tokens"], usage.get("completion_tokens"), usage["total_tokens"]
    if output is None or total == prompt + output + (reasoning or 0):  # xAI counts reasoning apart from the output
        output = max(0, total - prompt)
    return _usage(prompt, _first_alias(usage) if cached is None else cached, output, reasoning, total)


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


def _first_alias(usage: Mapping[str, Any]) -> int | None:
    return next((usage[name] for name in _CACHED_ALIASES if usage.get(name) is not None), None)
