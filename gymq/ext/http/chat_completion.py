"""From a Responses object to a chat completion, for agents that only speak Chat Completions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gymq.ext.conversion.items import reasoning_texts
from gymq.responses.errors import InvalidReply
from gymq.responses.items import Item, incomplete_reason, is_message
from gymq.responses.tokens import token_fields

_FINISH_REASONS = {"max_output_tokens": "length", "content_filter": "content_filter"}
_PLACES = ("start_index", "end_index")


def to_chat_completion(response: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a Responses object (as `validate_response` returns it) into a chat completion with one choice.

    Reasoning goes into `reasoning_content`, where `chat_messages_to_items` finds it again. The token fields of the last
    item that has them go into the message.

    Raises:
        InvalidReply: chat has no form for an item, such as the call of a hosted tool.
    """
    message, has_calls = _message(response["output"])
    finish_reason = _FINISH_REASONS.get(incomplete_reason(response) or "", "tool_calls" if has_calls else "stop")
    return {
        "id": f"chatcmpl-{response['id'].removeprefix('resp_')}",
        "object": "chat.completion",
        "created": int(response["created_at"]),
        "model": response["model"],
        "choices": [{"index": 0, "finish_reason": finish_reason, "logprobs": None, "message": message}],
        "usage": _usage(response.get("usage")),
    }


def _message(items: list[Item]) -> tuple[Item, bool]:
    """Return the message of a model's turn, and whether it calls tools."""
    texts: list[str] = []
    refusals: list[str] = []
    citations: list[Item] = []
    reasoning: list[str] = []
    calls: list[Item] = []
    tokens: dict[str, Any] = {}
    for index, item in enumerate(items):
        tokens = token_fields(item) or tokens
        if is_message(item):
            content = item["content"]
            parts = [{"text": content}] if isinstance(content, str) else content
            for part in parts:
                citations += _citations(part, sum(map(len, texts)))
                if part.get("text"):
                    texts.append(part["text"])
            refusals += [part["refusal"] for part in parts if part.get("refusal")]
            continue
        match item["type"]:
            case "reasoning":
                reasoning += reasoning_texts(item)
            case "function_call":
                function = {"name": item["name"], "arguments": item.get("arguments") or ""}
                calls.append({"id": item["call_id"], "type": "function", "function": function})
            case "custom_tool_call":
                custom = {"name": item["name"], "input": item.get("input") or ""}
                calls.append({"id": item["call_id"], "type": "custom", "custom": custom})
            case other:
                raise InvalidReply(f"output[{index}].type", f"items of type {other} cannot be converted to chat")
    message: Item = {
        "role": "assistant",
        "content": "".join(texts) or None,
        "refusal": "".join(refusals) or None,
        **tokens,
    }
    if citations:
        message["annotations"] = citations
    if reasoning:
        message["reasoning_content"] = "\n".join(reasoning)
    if calls:
        message["tool_calls"] = calls
    return message, bool(calls)


def _citations(part: Item, start: int) -> list[Item]:
    """Return what a part cites, if chat has a form for it: the others cite files.

    Args:
        start: where the part begins in the text of the message.
    """
    found = []
    notes = part.get("annotations")
    for note in notes if isinstance(notes, list) else ():
        if isinstance(note, dict) and note.get("type") == "url_citation":
            cited = {name: value for name, value in note.items() if name != "type"}
            places = {name: cited[name] + start for name in _PLACES if isinstance(cited.get(name), int)}
            found.append({"type": "url_citation", "url_citation": cited | places})
    return found


def _usage(usage: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if usage is None:
        return None
    return {
        "prompt_tokens": usage["input_tokens"],
        "prompt_tokens_details": usage.get("input_tokens_details"),
        "completion_tokens": usage["output_tokens"],
        "completion_tokens_details": usage.get("output_tokens_details"),
        "total_tokens": usage["total_tokens"],
    }
