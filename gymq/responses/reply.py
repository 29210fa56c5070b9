"""Check the reply of a model: a Responses object with items that fit `gymq.responses.schema`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec

from gymq.responses.errors import InvalidReply, InvalidRequest, checked
from gymq.responses.items import Item
from gymq.responses.schema import check_items

MAX_COUNT = 1 << 53
"""No number of tokens or seconds in a reply is as large; JSON readers disagree about larger ones."""

_Count = Annotated[int, msgspec.Meta(ge=0, lt=MAX_COUNT)]


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
