"""From the parameters of a Responses request, except its messages, to those of a Chat Completions request."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

from gymq.responses.custom_tools import TOOL, custom_as_function, is_custom
from gymq.responses.errors import MAX_NAME, InvalidRequest, warn_of_dropped, warn_once
from gymq.responses.items import Item

SAME_NAME = (
    "metadata",
    "model",
    "parallel_tool_calls",
    "service_tier",
    "store",
    "temperature",
    "top_logprobs",
    "top_p",
    "user",
)
"""Fields that both kinds of request have."""
_KEPT = (*SAME_NAME, "stream", "tool_choice")
_KEPT_ELSEWHERE = ("previous_response_id", "conversation")  # an earlier part of the conversation, by its id
_CONVERTED = frozenset({*_KEPT, "input", "instructions", "max_output_tokens", "reasoning", "text", "tools"})


def chat_settings(params: Mapping[str, Any], *, strict: bool) -> dict[str, Any]:
    """Return the fields of a chat request except `messages`.

    Custom tools become functions. Fields that chat does not have (`truncation`, `include`, ...), hosted
    tools and the choice of a tool that is no function are dropped, with one warning for each name.

    Args:
        strict: whether tools keep `strict: true`.

    Raises:
        InvalidRequest: the conversation is continued by an id, or a tool call is required without tools, or that of a
            function that is not offered.
    """
    for name in _KEPT_ELSEWHERE:
        if params.get(name) is not None:
            raise InvalidRequest(
                name, "an endpoint of Chat Completions keeps no conversations; send all items in `input`"
            )
    settings: dict[str, Any] = {name: params[name] for name in _KEPT if params.get(name) is not None}
    if params.get("max_output_tokens") is not None:
        settings["max_tokens"] = params["max_output_tokens"]
    if params.get("top_logprobs"):
        settings["logprobs"] = True  # chat refuses the number without it
    reasoning = params.get("reasoning") or {}
    if reasoning.get("effort") is not None:
        settings["reasoning_effort"] = reasoning["effort"]
    settings.update(_text(params.get("text") or {}))
    _warn_of_dropped({name: value for name, value in params.items() if name not in _CONVERTED})
    _warn_of_dropped({f"reasoning.{name}": value for name, value in reasoning.items() if name != "effort"})

    tool_choice = params.get("tool_choice")
    tools = [_tool(tool, strict=strict) for tool in params.get("tools") or () if _can_be_function(tool)]
    if isinstance(tool_choice, dict):
        settings["tool_choice"] = _tool_choice(tool_choice, [tool["function"]["name"] for tool in tools])
    if tools:
        settings["tools"] = tools
    elif not params.get("tools") and tool_choice == "required":
        raise InvalidRequest("tool_choice", "a tool call is required, but no tools are given")
    else:
        # Endpoints refuse these two fields without a list of tools.
        settings.pop("tool_choice", None)
        settings.pop("parallel_tool_calls", None)
    return settings


def _text(text: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields for the format of the reply; none for free text, the default."""
    settings: dict[str, Any] = {}
    if text.get("verbosity") is not None:
        settings["verbosity"] = text["verbosity"]
    wanted = text.get("format")
    match wanted:
        case {"type": "json_schema", **schema}:
            settings["response_format"] = {"type": "json_schema", "json_schema": schema}
        case {"type": "json_object"}:
            settings["response_format"] = {"type": "json_object"}
        case None | {"type": "text"}:
            pass
        case _:
            _warn_of_dropped({"text.format": wanted})
    _warn_of_dropped({f"text.{name}": value for name, value in text.items() if name not in ("format", "verbosity")})
    return settings


def _warn_of_dropped(fields: Mapping[str, Any]) -> None:
    warn_of_dropped(fields, "Chat Completions")


def _can_be_function(tool: Item) -> bool:
    if tool["type"] == "function" or is_custom(tool):
        return True
    warn_once(
        f"tools of type {tool['type'][:MAX_NAME]!r} are dropped: an endpoint of Chat Completions has functions only"
    )
    return False


def _tool_choice(choice: Mapping[str, Any], names: Container[str]) -> str | dict[str, Any]:
    """Return the choice of one of the functions with these names; only the mode of that of another kind of tool."""
    if choice.get("type") in ("function", TOOL):
        name = choice.get("name")
        if name not in names:
            raise InvalidRequest("tool_choice", f"no function {name!r:.{MAX_NAME}} is among the tools")
        return {"type": "function", "function": {"name": name}}
    warn_once(
        f"a tool choice of type {str(choice.get('type'))[:MAX_NAME]!r} is dropped: chat can choose functions only"
    )
    return "required" if choice.get("mode") == "required" else "auto"


def _tool(tool: Item, *, strict: bool) -> dict[str, Any]:
    if is_custom(tool):
        tool = custom_as_function(tool)
    said = {name: tool[name] for name in ("description", "parameters") if tool.get(name) is not None}
    if strict and tool.get("strict"):
        said["strict"] = True
    return {"type": "function", "function": {"name": tool["name"], **said}}
