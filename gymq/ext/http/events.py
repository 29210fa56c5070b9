"""A whole answer as the server-sent events that would have streamed it, in OpenAI's dialects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gymq.protocol.tokens import to_json

COMMENT = b": waiting\n\n"
"""An event that readers skip."""

Body = dict[str, Any]


def data(body: Body) -> bytes:
    """Return an event without a name."""
    return b"data: " + to_json(body) + b"\n\n"


def event(body: Body) -> bytes:
    """Return an event named by its body's `type`."""
    name: str = body["type"]
    return b"event: " + name.encode() + b"\n" + data(body)


# Chat Completions ------------------------------------------------------------------------------------------------


def of_completion(completion: Body, *, with_usage: bool) -> Iterator[bytes]:
    """Yield the chunks of a chat completion with one choice."""
    (choice,) = completion["choices"]
    message = choice["message"]
    head = {name: completion[name] for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}

    def chunk(delta: Body, finish_reason: str | None = None) -> bytes:
        usage = {"usage": None} if with_usage else {}
        return data({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}], **usage})

    yield chunk({"role": "assistant", "content": ""})
    for name in ("reasoning_content", "content", "refusal"):
        if message.get(name):
            yield chunk({name: message[name]})
    for index, call in enumerate(message.get("tool_calls") or ()):
        yield chunk({"tool_calls": [{"index": index, **call}]})
    yield chunk({}, choice["finish_reason"])
    if with_usage:
        yield data({**head, "choices": [], "usage": completion.get("usage")})
    yield b"data: [DONE]\n\n"


# Responses -------------------------------------------------------------------------------------------------------


def of_response(response: Body) -> Iterator[bytes]:
    """Yield the events of a Responses object."""
    for number, body in enumerate(_response_events(response)):
        yield event({**body, "sequence_number": number})


def _response_events(response: Body) -> Iterator[Body]:
    begun = {**response, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for index, item in enumerate(response["output"]):
        where = {"output_index": index}
        item_id = item.get("id") or f"item_{index}"
        begun_item = {**item, **{name: _EMPTY[name] for name in _GROWING.get(item["type"], ())}}
        begun_item["status"] = "in_progress"
        yield {"type": "response.output_item.added", **where, "item": begun_item}
        yield from _item_events(item, {**where, "item_id": item_id})
        yield {"type": "response.output_item.done", **where, "item": item}
    incomplete = bool(response.get("incomplete_details"))
    status = "incomplete" if incomplete else "completed"
    yield {"type": f"response.{status}", "response": {**response, "status": status}}


_GROWING = {
    "message": ("content",),
    "reasoning": ("summary",),
    "function_call": ("arguments",),
    "custom_tool_call": ("input",),
}
_EMPTY: Body = {"content": [], "summary": [], "arguments": "", "input": ""}


def _item_events(item: Body, where: Body) -> Iterator[Body]:
    """Yield the events between the beginning of an item and its end."""
    match item["type"]:
        case "message" if isinstance(item["content"], list):
            for index, part in enumerate(item["content"]):
                yield from _part_events(part, {**where, "content_index": index})
        case "reasoning":
            for index, part in enumerate(item["summary"]):
                at = {**where, "summary_index": index}
                kind = "response.reasoning_summary"
                yield {"type": f"{kind}_part.added", **at, "part": {**part, "text": ""}}
                yield {"type": f"{kind}_text.delta", **at, "delta": part["text"]}
                yield {"type": f"{kind}_text.done", **at, "text": part["text"]}
                yield {"type": f"{kind}_part.done", **at, "part": part}
        case "function_call":
            arguments = item.get("arguments") or ""
            yield {"type": "response.function_call_arguments.delta", **where, "delta": arguments}
            done = {"name": item["name"], "arguments": arguments}
            yield {"type": "response.function_call_arguments.done", **where, **done}
        case "custom_tool_call":
            text = item.get("input") or ""
            yield {"type": "response.custom_tool_call_input.delta", **where, "delta": text}
            yield {"type": "response.custom_tool_call_input.done", **where, "input": text}


def _part_events(part: Body, where: Body) -> Iterator[Body]:
    is_refusal = part["type"] == "refusal"
    field, kind = ("refusal", "response.refusal") if is_refusal else ("text", "response.output_text")
    extra: Body = {} if is_refusal else {"logprobs": []}
    has_text = field in part  # an image has none
    yield {"type": "response.content_part.added", **where, "part": {**part, field: ""} if has_text else part}
    if has_text:
        yield {"type": f"{kind}.delta", **where, "delta": part[field], **extra}
        yield {"type": f"{kind}.done", **where, field: part[field], **extra}
    yield {"type": "response.content_part.done", **where, "part": part}
