"""Replies of models that are slightly off, mended where they can be read: only those whose check has failed.

Fields that count or repeat the request are filled; what the model said keeps its words.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from gymq.responses.errors import warn_once
from gymq.responses.items import Item, new_id

_FINISH_REASONS = {"max_tokens": "length", "function_call": "tool_calls", "safety": "content_filter"}
_ENDED_BY_ENGINE = frozenset({"length", "content_filter"})


def mended_completion(completion: Mapping[str, Any]) -> dict[str, Any]:
    """Return a chat completion with the fields that the schema asks for, where its own can be read."""
    _warn("a chat completion")
    choices = completion.get("choices")
    return {
        **completion,
        "created": _number(completion.get("created")) or 0,
        "choices": [_choice(choice) for choice in choices] if isinstance(choices, list) else choices,
        "usage": _usage(completion.get("usage"), "prompt_tokens", "completion_tokens"),
    }


def mended_response(response: Mapping[str, Any], params: Mapping[str, Any], model: str) -> dict[str, Any]:
    """Return a Responses object with the fields that the schema asks for, where its own can be read.

    Args:
        params: the create parameters that were answered.
        model: the name for a reply without one.
    """
    _warn("a Responses object")
    output = response.get("output")
    parallel = response.get("parallel_tool_calls")
    if not isinstance(parallel, bool):
        parallel = params.get("parallel_tool_calls") is not False
    return {
        **response,
        "id": _text(response.get("id")) or new_id("resp"),
        "object": "response",
        "created_at": _number(response.get("created_at")) or 0,
        "model": _text(response.get("model")) or model,
        "output": [_item(item) for item in output] if isinstance(output, list) else output,
        "parallel_tool_calls": parallel,
        "tool_choice": params.get("tool_choice") or "auto",
        "tools": params.get("tools") or [],
        "usage": _usage(response.get("usage"), "input_tokens", "output_tokens"),
    }


def _warn(what: str) -> None:
    warn_once(f"{what} of the endpoint does not fit the specification; it is read as far as it can be")


def _choice(choice: Any) -> Any:
    if not isinstance(choice, dict):
        return choice
    reason = choice.get("finish_reason")
    reason = reason.lower() if isinstance(reason, str) else None
    reason = _FINISH_REASONS.get(reason or "", reason)
    message = choice.get("message")
    if message is None and reason in _ENDED_BY_ENGINE:
        message = {}  # as Gemini sends it where the limit came before the first word
    return {**choice, "finish_reason": reason, "message": _message(message) if isinstance(message, dict) else message}


def _message(message: Mapping[str, Any]) -> Item:
    mended = dict(message)
    if isinstance(parts := message.get("content"), list):
        mended["content"] = "".join(map(_said, parts)) or None
        thoughts = "".join(_said(part, of="thinking") for part in parts)
        if thoughts and not message.get("reasoning_content"):
            mended["reasoning_content"] = thoughts
    calls = message.get("tool_calls") or []
    if isinstance(old := mended.pop("function_call", None), dict) and not calls:
        calls = [{"function": old}]
    mended["tool_calls"] = [_call(call) for call in calls] if isinstance(calls, list) else calls
    return mended


def _said(part: Any, *, of: str = "text") -> str:
    """Return the text of a part of this type; a part's `thinking` may be a list of texts."""
    if isinstance(part, str):
        return part if of == "text" else ""
    if not isinstance(part, dict) or part.get("type", "text") not in (of, f"output_{of}"):
        return ""
    said = part.get(of)
    return "".join(map(_said, said)) if isinstance(said, list) else said if isinstance(said, str) else ""


def _call(call: Any) -> Any:
    if not isinstance(call, dict) or not isinstance(function := call.get("function"), dict):
        return call
    named = {**function, "arguments": _arguments(function.get("arguments"))}
    return {**call, "id": _text(call.get("id")), "type": "function", "function": named}


def _item(item: Any) -> Any:
    if not isinstance(item, dict):
        return item
    mended = {**item, **{name: _text(item[name]) for name in ("id", "call_id") if name in item}}
    match item.get("type"):
        case "function_call":
            mended["call_id"] = mended.get("call_id") or mended.get("id") or new_id("call")
            mended["arguments"] = _arguments(item.get("arguments"))
        case "reasoning" if not isinstance(item.get("summary"), list):
            mended["summary"] = []
    return mended


def _arguments(arguments: Any) -> str:
    if arguments is None:
        return ""
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def _text(value: Any) -> str | None:
    return str(value) if isinstance(value, str | int | float) else None


def _number(value: Any) -> float | None:
    """Return a number that may be written as text; None for anything else."""
    try:
        number = float(value) if isinstance(value, str | int | float) else math.nan
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _usage(usage: Any, prompt: str, reply: str) -> dict[str, Any] | None:
    """Return a usage with whole numbers; None if they do not say how many tokens the prompt and the reply have."""
    if not isinstance(usage, dict):
        return None
    counts = {name: int(number) for name, value in usage.items() if (number := _number(value)) is not None}
    if "total_tokens" not in counts and {prompt, reply} <= counts.keys():
        counts["total_tokens"] = counts[prompt] + counts[reply]
    for name, other in ((prompt, reply), (reply, prompt)):
        if name not in counts and {other, "total_tokens"} <= counts.keys():
            counts[name] = counts["total_tokens"] - counts[other]
    if not {prompt, reply, "total_tokens"} <= counts.keys() or min(counts.values()) < 0:
        return None
    details = {
        name: {detail: int(number) for detail, value in given.items() if (number := _number(value)) is not None}
        for name, given in usage.items()
        if name.endswith("_details") and isinstance(given, dict)
    }
    return {**counts, **details}
