"""Check the reply of a model: a Responses object with items that fit `gymq.responses.schema`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec

from gymq.responses.errors import InvalidReply, InvalidRequest, checked
from gymq.responses.items import Item, new_id
from gymq.responses.mending import MAX_COUNT, mended_response
from gymq.responses.schema import check_items

_Count = Annotated[int, msgspec.Meta(ge=0, lt=MAX_COUNT)]


_ENDED = ("completed", "incomplete")  # in other states the rest may follow


class _InputDetails(msgspec.Struct):
    cached_tokens: _Count | None = None


class _OutputDetails(msgspec.Struct):
    reasoning_tokens: _Count | None = None


class _Usage(msgspec.Struct):
    input_tokens: _Count
    output_tokens: _Count
    total_tokens: _Count
    input_tokens_details: _InputDetails | None = None
    output_tokens_details: _OutputDetails | None = None


class _IncompleteDetails(msgspec.Struct):
    reason: str | None = None


class _Response(msgspec.Struct):
    id: str
    created_at: Annotated[float, msgspec.Meta(ge=0, lt=MAX_COUNT)]
    model: str
    object: Literal["response"]
    output: list[dict[str, Any]]
    parallel_tool_calls: bool
    tool_choice: str | dict[str, Any]
    tools: list[dict[str, Any]]
    incomplete_details: _IncompleteDetails | None = None
    usage: _Usage | None = None


def validate_response(body: object) -> dict[str, Any]:
    """Check a Responses object and return it; its items go through the same checks as input items.

    Raises:
        InvalidReply: a field does not fit; the error has the path of the first one.
    """
    if not isinstance(body, dict):
        raise InvalidReply("", f"expected a Responses object, got {type(body).__name__}")
    checked(body, _Response, InvalidReply)
    for index, item in enumerate(body["output"]):
        if item.get("type") is None:
            raise InvalidReply(f"output[{index}].type", "missing; an output item has a type")
        if item["type"] == "function_call" and not item.get("call_id"):
            raise InvalidReply(f"output[{index}].call_id", "missing; its output could not name it")
    try:
        return {**body, "output": check_items(body["output"], "output")}
    except InvalidRequest as error:
        raise InvalidReply(error.path, error.reason) from None


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
    return validate_response(mended_response(body, params, model))


def cut_before_first_token(response: Mapping[str, Any]) -> dict[str, Any]:
    """Return a Responses object as that of a conversation that cannot be continued: cut short, and without usage."""
    message = {
        "type": "message",
        "id": new_id("msg"),
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "", "annotations": []}],
    }
    cut = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}, "usage": None}
    return {**response, **cut, "output": [message]}


def response_without_model(name: str, output: Sequence[Mapping[str, Any]]) -> Item:
    """Return a Responses object around items that no model generated, with `name` as the name of the model."""
    return {
        "id": f"resp_{name}",
        "object": "response",
        "created_at": 0,
        "model": name,
        "output": list(output),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
