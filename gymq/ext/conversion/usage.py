"""The usage of a chat completion in Responses form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gymq.responses.usage import usage_detail, usage_object

# Where providers put the number that OpenAI reports in the nested details.
_CACHED_ALIASES = ("cached_tokens", "num_cached_tokens", "prompt_cache_hit_tokens", "cache_read_input_tokens")


def usage_from_chat(usage: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the usage of a chat completion in Responses form: the provider's total, null for unknown details."""
    if usage is None:
        return None
    cached = usage_detail(usage, "prompt_tokens_details", "cached_tokens")
    reasoning = usage_detail(usage, "completion_tokens_details", "reasoning_tokens")
    reasoning = usage.get("reasoning_tokens") if reasoning is None else reasoning
    prompt, output, total = usage["prompt_tokens"], usage.get("completion_tokens"), usage["total_tokens"]
    if output is None or total == prompt + output + (reasoning or 0):  # xAI counts reasoning apart from the output
        output = max(0, total - prompt)
    return usage_object(prompt, _first_alias(usage) if cached is None else cached, output, reasoning, total)


def _first_alias(usage: Mapping[str, Any]) -> int | None:
    return next((usage[name] for name in _CACHED_ALIASES if usage.get(name) is not None), None)
