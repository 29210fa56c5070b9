"""Items of the Responses API as messages of verifiers 0.4, and these as messages of Chat Completions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from gymq import responses
from gymq.ext.conversion.items import reasoning_texts
from gymq.ext.conversion.to_chat import as_function
from gymq.protocol.tokens import GENERATION_FIELD

Row = dict[str, Any]

_GIVEN_ROLES = ("user", "system", "developer", "tool")  # of messages that no model wrote


def turns(items: Sequence[Row]) -> Iterator[list[Row]]:
    """Yield the items of each message. A message of the model has the tokens of one call at most."""
    turn: list[Row] = []
    for given in items:
        item = as_function(given) or given
        begins_call = item.get(GENERATION_FIELD) and any(one.get(GENERATION_FIELD) for one in turn)
        if turn and (begins_call or not (is_models(item) and is_models(turn[0]))):
            yield turn
            turn = []
        turn.append(item)
    if turn:
        yield turn


def is_models(item: Row) -> bool:
    return item.get("role") not in _GIVEN_ROLES and not str(item.get("type")).endswith("_output")


def message(items: Sequence[Row]) -> Row:
    item = items[0]
    if is_models(item):
        thoughts = [text for one in items if one.get("type") == "reasoning" for text in reasoning_texts(one)]
        calls = [
            {"id": call["call_id"], "name": call["name"], "arguments": call.get("arguments") or ""}
            for call in items
            if call.get("type") == "function_call"
        ]
        text = responses.assistant_text({"output": items}) or None
        reasoning = "\n".join(thoughts) or None
        return {"role": "assistant", "content": text, "reasoning_content": reasoning, "tool_calls": calls or None}
    if "role" not in item or item["role"] == "tool":
        call_id = str(item.get("call_id") or item.get("tool_call_id") or "")
        return {"role": "tool", "tool_call_id": call_id, "content": _content(item.get("output", item.get("content")))}
    return {"role": "user" if item["role"] == "user" else "system", "content": _content(item.get("content"))}


def _content(given: Any) -> str | list[Row]:
    if not isinstance(given, list):
        return given if isinstance(given, str) else json.dumps(given)
    return [_part(part) for part in given]


def _part(part: Row) -> Row:
    if isinstance(part.get("text"), str):
        return {"type": "text", "text": part["text"]}
    url = part.get("image_url")
    if isinstance(url, str):
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "text", "text": json.dumps(part)}


def chat_message(given: Row) -> Row:
    """Return a message of verifiers, whose tool calls are flat, as one of Chat Completions."""
    made = {name: value for name, value in given.items() if value is not None and name != "provider_state"}
    if given.get("tool_calls"):
        made["tool_calls"] = [
            {
                "id": call.get("id"),
                "type": "function",
                "function": {name: call.get(name) for name in ("name", "arguments")},
            }
            for call in given["tool_calls"]
            if isinstance(call, dict)
        ]
    if given.get("role") == "assistant":
        made.setdefault("content", "")
    return made
