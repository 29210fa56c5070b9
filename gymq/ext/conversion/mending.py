"""Replies of models that are slightly off, mended where they can be read: only those whose check has failed.

Fields that count or repeat the request are filled; what the model said keeps its words.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from gymq.ext.conversion.notes import note
from gymq.responses.errors import InvalidReply
from gymq.responses.items import Item, new_id
from gymq.responses.reply import MAX_COUNT, validate_response

_ENDED = ("completed", "incomplete")  # in other states the rest may follow
_FINISH_REASONS = {"max_tokens": "length", "function_call": "tool_calls", "safety": "content_filter"}
_TEXTS = ("text", "output_text")
_ENDED_BY_ENGINE = frozenset({"length", "content_filter"})


def mended_completion(completion: Mapping[str, Any]) -> dict[str, Any]:
    """Return a chat completion with the fields that the schema asks for, where its own can be read."""
    choices = completion.get("choices")
    mended = {
        **completion,
        "created": _number(completion.get("created")) or 0,
        "choices": [_choice(choice) for choice in choices] if isinstance(choices, list) else choices,
        "usage": _usage(completion.get("usage"), "prompt_tokens", "completion_tokens"),
    }
    _note(completion, mended)
    return mended


def readable_response(body: dict[str, Any], params: Mapping[str, Any], model: str) -> dict[str, Any]:
    """Check the Responses object of an endpoint and return it; one that does not fit is mended first.

    Args:
        params: the create parameters that were answered.
        model: the name for a reply without one.

    Raises:
        InvalidReply: it cannot be mended.
    """
    status = body.get("status") or "completed"
    if status not in _ENDED:
        raise InvalidReply("status", f"{status!r} instead of completed or incomplete")
    fits = status == "completed" or body.get("incomplete_details")
    try:
        if fits:
            return validate_response(body)
    except InvalidReply:
        if not body.get("output"):
            raise
    return validate_response(_mended_response(body, params, model))


def _mended_response(response: Mapping[str, Any], params: Mapping[str, Any], model: str) -> dict[str, Any]:
    """Return a Responses object with the fields that the schema asks for, where its own can be read.

    Args:
        params: the create parameters that were answered.
        model: the name for a reply without one.
    """
    output = response.get("output")
    details = response.get("incomplete_details")
    if not (isinstance(details, dict) and details):
        details = {"reason": details if isinstance(details, str) else "max_output_tokens"}
    parallel = response.get("parallel_tool_calls")
    if not isinstance(parallel, bool):
        parallel = params.get("parallel_tool_calls") is not False
    mended = {
        **response,
        "id": _text(response.get("id")) or new_id("resp"),
        "object": "response",
        "created_at": _number(response.get("created_at")) or 0,
        "model": _text(response.get("model")) or model,
        "status": response.get("status") or "completed",
        "incomplete_details": details if response.get("status") == "incomplete" else None,
        "output": [_item(item) for item in output] if isinstance(output, list) else output,
        "parallel_tool_calls": parallel,
        "tool_choice": params.get("tool_choice") or "auto",
        "tools": params.get("tools") or [],
        "usage": _usage(response.get("usage"), "input_tokens", "output_tokens"),
    }
    _note(response, mended)
    return mended


def _note(given: Mapping[str, Any], mended: Mapping[str, Any]) -> None:
    for name in _changed(given, mended):
        note(f"replies with another `{name}` than specified")


def _changed(given: Any, mended: Any) -> set[str]:
    """Return the names of the fields that were mended; those are few, whatever an engine sends."""
    if isinstance(given, dict) and isinstance(mended, dict):
        pairs = [(name, given.get(name), value) for name, value in mended.items()]
        nested = [_changed(before, after) or {name} for name, before, after in pairs if before != after]
        return set().union(*nested)
    if isinstance(given, list) and isinstance(mended, list) and len(given) == len(mended):
        return set().union(*map(_changed, given, mended))
    return set()


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
    content = message.get("content")
    if (thoughts := _thoughts(content)) and not message.get("reasoning_content"):
        mended["reasoning_content"] = thoughts
    if not isinstance(content, str):
        mended["content"] = _words(content) or None
    mended["refusal"] = _text(message.get("refusal"))
    calls = message.get("tool_calls") or []
    if isinstance(old := mended.pop("function_call", None), dict) and not calls:
        calls = [{"function": old}]
    calls = [calls] if isinstance(calls, dict) else calls
    if calls or message.get("tool_calls") is not None:
        mended["tool_calls"] = [_call(call) for call in calls] if isinstance(calls, list) else calls
    return mended


def _words(content: Any) -> str:
    """Return the text of a message, which may be in parts, or parsed by a gateway because it is JSON."""
    if isinstance(content, dict) and "text" not in content:
        return json.dumps(content, ensure_ascii=False)
    parts = content if isinstance(content, list) else [content]
    return "".join(_text_in(part) for part in parts if _kind_of_part(part) in _TEXTS)


def _thoughts(content: Any) -> str:
    """Return the reasoning among the parts of a message."""
    parts = content if isinstance(content, list) else ()
    return "".join(_text_in(part.get("thinking")) for part in parts if _kind_of_part(part) == "thinking")


def _kind_of_part(part: Any) -> Any:
    return part.get("type", "text") if isinstance(part, dict) else "text"


def _text_in(value: Any, deepest: int = 4) -> str:
    """Return the text in a part, or in the list of its texts; empty without."""
    match value:
        case str():
            return value
        case list() if deepest:
            return "".join(_text_in(one, deepest - 1) for one in value)
        case {"text": text} if deepest:
            return _text_in(text, deepest - 1)
    return _text(value) or ""


def _call(call: Any) -> Any:
    if not isinstance(call, dict) or not isinstance(function := call.get("function", call), dict):
        return call
    named = {**function, "arguments": _arguments(function.get("arguments"))}
    return {**call, "id": _text(call.get("id")), "type": "function", "function": named}


def _item(item: Any) -> Any:
    if not isinstance(item, dict):
        return item
    mended = {name: value for name, value in item.items() if name != "status" or isinstance(value, str)}
    mended |= {name: _text(item[name]) for name in ("id", "call_id") if name in item}
    mended["type"] = kind = _kind(item)
    match kind:
        case "message":
            mended["role"] = item.get("role") or "assistant"
            mended["content"] = _parts(item.get("content"), "output_text")
        case "function_call":
            mended["call_id"] = mended.get("call_id") or mended.get("id") or new_id("call")
            mended["arguments"] = _arguments(item.get("arguments"))
        case "reasoning":
            mended["summary"] = _parts(item.get("summary"), "summary_text")
            if item.get("content") is not None:
                mended["content"] = _parts(item["content"], "reasoning_text")
    return mended


def _kind(item: Item) -> Any:
    """Return the type of an item, which its other fields show where it is missing."""
    kind = item.get("type")
    if isinstance(kind, str):
        return kind.lower()
    if "summary" in item:
        return "reasoning"
    if "arguments" in item or "call_id" in item:
        return "function_call"
    return "message" if "role" in item or "content" in item else kind


def _parts(content: Any, kind: str) -> list[Item]:
    """Return the content of an item in parts of a type; refusals stay what they are."""
    parts = content if isinstance(content, list) else [] if content is None else [content]
    return [
        part
        if isinstance(part, dict) and part.get("type") == "refusal" and isinstance(part.get("refusal"), str)
        else {**(part if isinstance(part, dict) else {}), "type": kind, "text": _text_in(part)}
        for part in parts
    ]


def _arguments(arguments: Any) -> str:
    if arguments is None:
        return ""
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def _text(value: Any) -> str | None:
    return str(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else None


def _number(value: Any) -> float | None:
    """Return a count that may be written as text; None for anything else."""
    try:
        number = float(value) if isinstance(value, str | int | float) else math.nan
    except (ValueError, OverflowError):
        return None
    return number if 0 <= number < MAX_COUNT else None


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
