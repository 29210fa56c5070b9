"""From a Chat Completions request to Responses create parameters, for agents that only speak Chat Completions."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

from gymq.ext.conversion.custom_tools import CALL, TOOL
from gymq.ext.conversion.items import function_tool, reasoning_item
from gymq.ext.conversion.notes import warn_of_dropped
from gymq.ext.conversion.to_chat import SAME_NAME
from gymq.responses.errors import InvalidRequest
from gymq.responses.items import Item, function_call_output
from gymq.responses.tokens import token_fields

_Convert = Callable[[Mapping[str, Any], str], Item]  # of a part and its path

_CONVERTED = frozenset(
    {
        *SAME_NAME,
        "max_completion_tokens",
        "max_tokens",
        "messages",
        "n",
        "reasoning_effort",
        "response_format",
        "stream",
        "stream_options",
        "tool_choice",
        "tools",
        "verbosity",
    }
)


def from_chat_request(request: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a Chat Completions request into create parameters; `validate_params` checks the result.

    Fields that the Responses API does not have, `stop` among them, are dropped with one warning for each name. `stream`
    is dropped too: workers answer with the whole reply, which `to_chat_completion` converts to chat.

    Raises:
        InvalidRequest: `messages`, a message, part or tool does not fit, or a Responses request has no form for it.
    """
    if request.get("n") not in (None, 1):
        raise InvalidRequest("n", "one request gives one response; send several requests")
    params: dict[str, Any] = {"input": chat_messages_to_items(_a_list(request.get("messages"), "messages"))}
    for name in SAME_NAME:
        if request.get(name) is not None:
            params[name] = request[name]
    for name in ("max_completion_tokens", "max_tokens"):
        if request.get(name) is not None:
            params.setdefault("max_output_tokens", request[name])
    if request.get("reasoning_effort") is not None:
        params["reasoning"] = {"effort": request["reasoning_effort"]}
    if request.get("tools"):
        tools = _a_list(request["tools"], "tools")
        params["tools"] = [_tool(tool, f"tools[{index}]") for index, tool in enumerate(tools)]
    if request.get("tool_choice") is not None:
        params["tool_choice"] = _tool_choice(request["tool_choice"])
    text = _text(request)
    if text:
        params["text"] = text
    warn_of_dropped(
        {name: value for name, value in request.items() if name not in _CONVERTED}, "a request for a response"
    )
    return params


def _text(request: Mapping[str, Any]) -> Item:
    """Return the settings for the text of the reply; empty without any."""
    text: Item = {}
    if request.get("verbosity") is not None:
        text["verbosity"] = request["verbosity"]
    if request.get("response_format") is not None:
        wanted = _an_object(request["response_format"], "response_format")
        nested = _an_object(wanted.get("json_schema") or {}, "response_format.json_schema")
        text["format"] = {"type": wanted.get("type"), **nested}
    return text


def chat_messages_to_items(messages: Sequence[Any]) -> list[Item]:
    """Convert a chat history into items; `path`s in errors start with `messages`.

    An assistant message becomes reasoning, message and function calls, in this order; its token fields go on the last
    of them.

    Raises:
        InvalidRequest: see `from_chat_request`.
    """
    items: list[Item] = []
    custom_ids: set[str] = set()
    for index, message in enumerate(messages):
        try:
            new = _items(_an_object(message, ""), custom_ids)
        except InvalidRequest as error:
            raise error.within(f"messages[{index}]") from None
        custom_ids |= {item["call_id"] for item in new if item["type"] == CALL}
        items += new
    return items


def _items(message: Mapping[str, Any], custom_ids: Container[str]) -> list[Item]:
    match message.get("role"):
        case "assistant":
            return _assistant_items(message)
        case "tool":
            output = _content(message.get("content") or "", _TOOL_PARTS)
            call_id = message.get("tool_call_id")
            if not isinstance(call_id, str):
                raise InvalidRequest("tool_call_id", "missing in a tool message")
            kind = {"type": "custom_tool_call_output"} if call_id in custom_ids else {}
            return [{**function_call_output(call_id, ""), "output": output, **kind}]
        case "system" | "developer" | "user" as role:
            return [{"type": "message", "role": role, "content": _content(message.get("content"), _PARTS)}]
        case other:
            raise InvalidRequest(
                "role", f"{other!r} is not a role; expected system, developer, user, assistant or tool"
            )


def _assistant_items(message: Mapping[str, Any]) -> list[Item]:
    items: list[Item] = []
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    if reasoning:
        items.append(reasoning_item([reasoning]))
    calls = message.get("tool_calls") or []
    content = _content(message.get("content") or "", _ASSISTANT_PARTS)
    if message.get("refusal"):
        said = [{"type": "output_text", "text": content}] if content and isinstance(content, str) else content
        content = [*said, {"type": "refusal", "refusal": message["refusal"]}]
    if content or not (items or calls):
        items.append({"type": "message", "role": "assistant", "content": content})
    for index, call in enumerate(_a_list(calls, "tool_calls")):
        path = f"tool_calls[{index}]"
        items.append(_call(_an_object(call, path), path))
    items[-1].update(token_fields(message) or {})
    return items


def _call(call: Mapping[str, Any], path: str) -> Item:
    if call.get("type") == TOOL:
        custom = _an_object(call.get("custom"), f"{path}.custom")
        item = {"type": CALL, "call_id": call.get("id"), "name": custom.get("name"), "input": custom.get("input")}
        for name, value in item.items():
            if not isinstance(value, str):
                raise InvalidRequest(f"{path}.{name}", f"expected a text, got {type(value).__name__}")
        return item
    function = _an_object(call.get("function"), f"{path}.function")
    return {
        "type": "function_call",
        "call_id": call.get("id"),
        "name": function.get("name"),
        "arguments": function.get("arguments"),
    }


def _content(content: object, converters: Mapping[str, _Convert]) -> str | list[Item]:
    if isinstance(content, str):
        return content
    parts = []
    for index, value in enumerate(_a_list(content, "content")):
        path = f"content[{index}]"
        part = _an_object(value, path)
        convert = converters.get(str(part.get("type")))
        if convert is None:
            raise InvalidRequest(f"{path}.type", f"parts of type {part.get('type')} cannot be converted here")
        parts.append(convert(part, path))
    return parts


def _text_part(part: Mapping[str, Any], path: str) -> Item:
    return {"type": "input_text", "text": part.get("text")}


def _output_text_part(part: Mapping[str, Any], path: str) -> Item:
    return {"type": "output_text", "text": part.get("text")}


def _refusal_part(part: Mapping[str, Any], path: str) -> Item:
    return {"type": "refusal", "refusal": part.get("refusal")}


def _image_part(part: Mapping[str, Any], path: str) -> Item:
    image = _an_object(part.get("image_url"), f"{path}.image_url")
    return {"type": "input_image", "image_url": image.get("url"), "detail": image.get("detail") or "auto"}


def _video_part(part: Mapping[str, Any], path: str) -> Item:
    video = _an_object(part.get("video_url"), f"{path}.video_url")
    return {"type": "input_video", "video_url": video.get("url")}


_PARTS: dict[str, _Convert] = {"text": _text_part, "image_url": _image_part, "video_url": _video_part}
_TOOL_PARTS: dict[str, _Convert] = {"text": _text_part, "image_url": _image_part}
# OpenAI refuses `input_text` in what the assistant said.
_ASSISTANT_PARTS: dict[str, _Convert] = {"text": _output_text_part, "refusal": _refusal_part}


def _tool(tool: object, path: str) -> Item:
    tool = _an_object(tool, path)
    if tool.get("type") == TOOL:
        return _custom_tool(_an_object(tool.get("custom"), f"{path}.custom"), f"{path}.custom")
    if tool.get("type") != "function":
        raise InvalidRequest(f"{path}.type", "only function and custom tools can be converted")
    function = _an_object(tool.get("function"), f"{path}.function")
    return function_tool(
        function.get("name"),
        function.get("parameters"),
        strict=function.get("strict"),
        description=function.get("description"),
    )


def _custom_tool(custom: Mapping[str, Any], path: str) -> Item:
    """Return a custom tool; chat keeps its grammar in an object of its own."""
    tool = {"type": TOOL, **{name: value for name, value in custom.items() if name != "type"}}
    wanted = tool.get("format")
    if isinstance(wanted, dict):
        grammar = _an_object(wanted.get("grammar") or {}, f"{path}.format.grammar")
        tool["format"] = {"type": wanted.get("type"), **grammar}
    return tool


def _tool_choice(choice: object) -> object:
    if isinstance(choice, str):
        return choice
    chosen = _an_object(choice, "tool_choice")
    match chosen.get("type"):
        case "function" | "custom":
            return _named_tool(chosen, "tool_choice")
        case "allowed_tools":
            path = "tool_choice.allowed_tools"
            allowed = _an_object(chosen.get("allowed_tools"), path)
            tools = _a_list(allowed.get("tools"), f"{path}.tools")
            named = [_named_tool(_an_object(tool, path), f"{path}.tools[{index}]") for index, tool in enumerate(tools)]
            return {"type": "allowed_tools", "mode": allowed.get("mode") or "auto", "tools": named}
    raise InvalidRequest(
        "tool_choice", "only auto, none, required, allowed_tools and a choice of tool can be converted"
    )


def _named_tool(choice: Mapping[str, Any], path: str) -> Item:
    """Return `{type, name}`, where chat has the name in an object that is named after the type."""
    kind = choice.get("type")
    if kind not in ("function", TOOL):
        raise InvalidRequest(f"{path}.type", "only function and custom tools can be chosen")
    return {"type": kind, "name": _an_object(choice.get(kind), f"{path}.{kind}").get("name")}


def _a_list(value: object, path: str) -> list[Any]:
    if not isinstance(value, list):
        raise InvalidRequest(path, f"expected a list, got {type(value).__name__}")
    return value


def _an_object(value: object, path: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidRequest(path, f"expected an object, got {type(value).__name__}")
    return value
