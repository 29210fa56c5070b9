"""Tools whose input is free text, for endpoints that only have functions: there they take one argument, `input`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from gymq.ext.conversion.items import function_tool
from gymq.protocol.decoding import UNDECODABLE
from gymq.responses.items import Item, function_call
from gymq.responses.tokens import token_fields

TOOL, CALL = "custom", "custom_tool_call"


class _Arguments(msgspec.Struct):
    input: str


def is_custom(tool: Item) -> bool:
    """Return whether an entry of `tools` is one that a function can stand for."""
    return tool.get("type") == TOOL and isinstance(tool.get("name"), str)


def custom_as_function(tool: Item) -> Item:
    """Return the function that stands for a custom tool; a grammar becomes a part of its description."""
    given: Item = {"type": "string"}
    match tool.get("format"):
        case {"type": "grammar", "syntax": syntax, "definition": definition}:
            given["description"] = f"Text that follows this grammar ({syntax}):\n{definition}"
    parameters = {"type": "object", "properties": {"input": given}, "required": ["input"]}
    return function_tool(tool["name"], parameters, strict=None, description=tool.get("description"))


def call_as_function_call(item: Item) -> Item:
    """Return the function call that stands for a call of a custom tool, with its token fields."""
    text = json.dumps({"input": item.get("input") or ""}, ensure_ascii=False)
    return {**function_call(item["name"], text, item["call_id"]), **(token_fields(item) or {})}


def calls_of_custom_tools(items: Iterable[Item], tools: Iterable[Mapping[str, Any]]) -> list[Item]:
    """Turn the calls of functions that stand for custom tools back into calls of these.

    What a model wrote in place of the one argument is the input as it is.

    Args:
        tools: those of the request.
    """
    names = {tool["name"] for tool in tools if is_custom(dict(tool))}
    names -= {tool.get("name") for tool in tools if tool["type"] == "function"}
    return [_custom_call(item) if item["type"] == "function_call" and item["name"] in names else item for item in items]


def _custom_call(item: Item) -> Item:
    rest = {name: value for name, value in item.items() if name != "arguments"}
    return {**rest, "type": CALL, "input": _input(item["arguments"])}


def _input(arguments: str) -> str:
    try:
        return msgspec.json.decode(arguments, type=_Arguments).input
    except UNDECODABLE:
        return arguments
