"""From an engine's reply to a chat completion with reasoning in think tags. Nothing here does I/O."""

from __future__ import annotations

import time
from typing import Any

from gymq.errors import GymqError
from gymq.responses import InvalidReply

_EMPTY_REPLY_ID = "chtcmpl-123"  # spelt as NeMo Gym spells it


class UnexpectedReasoning(GymqError, ValueError):
    """The engine separates reasoning although the worker is configured otherwise."""


def put_reasoning_into_text(completion: dict[str, Any], *, uses_reasoning_parser: bool) -> None:
    """Put reasoning that the engine separated as think tags in front of the text, in place.

    Raises:
        UnexpectedReasoning: there is some, but no parser is configured.
        InvalidReply: it is not text.
    """
    for index, choice in enumerate(completion["choices"]):
        message = choice["message"]
        given = [message.pop(name, None) for name in ("reasoning_content", "reasoning")]
        reasoning = given[0] or given[1]
        if not reasoning:
            continue
        if not isinstance(reasoning, str):
            raise InvalidReply(f"choices[{index}].message.reasoning", "expected text")
        if not uses_reasoning_parser:
            raise UnexpectedReasoning(
                "the engine runs a reasoning parser, but uses_reasoning_parser is false; "
                "set it to true, or start the engine without --reasoning-parser"
            )
        message["content"] = f"<think>{reasoning}</think>{message.get('content') or ''}"


def empty_completion(model: str, finish_reason: str) -> dict[str, Any]:
    """Return a chat completion without text, usage and token ids that says why there is nothing."""
    message = {"role": "assistant", "content": None}
    return {
        "id": _EMPTY_REPLY_ID,
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model,
        "choices": [{"index": 0, "finish_reason": finish_reason, "message": message}],
    }
