"""Replies as endpoints give them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gymq.testing import reply

USAGE = {
    "input_tokens": 11,
    "input_tokens_details": {"cached_tokens": 4},
    "output_tokens": 5,
    "output_tokens_details": {"reasoning_tokens": 2},
    "total_tokens": 16,
}
CHAT_USAGE = {
    "prompt_tokens": 11,
    "prompt_tokens_details": {"cached_tokens": 4},
    "completion_tokens": 5,
    "completion_tokens_details": {"reasoning_tokens": 2},
    "total_tokens": 16,
}


def response(*parts: str | Mapping[str, Any]) -> dict[str, Any]:
    """A Responses object as OpenAI sends it."""
    return {**reply(*parts), "status": "completed", "error": None, "incomplete_details": None, "usage": USAGE}


def completion(text: str | None, *, finish_reason: str = "stop", **message: Any) -> dict[str, Any]:
    """A chat completion as OpenAI sends it."""
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1750000000,
        "model": "served",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": text, "refusal": None, **message},
                "finish_reason": finish_reason,
                "logprobs": None,
            }
        ],
        "usage": CHAT_USAGE,
    }
