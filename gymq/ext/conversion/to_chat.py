"""From a Responses request to a Chat Completions request."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Mapping
from typing import Any

from gymq.ext.conversion.arguments import sent_arguments
from gymq.ext.conversion.custom_tools import CALL, TOOL, call_as_function_call, custom_as_function, is_custom
from gymq.ext.conversion.items import reasoning_texts
from gymq.ext.conversion.notes import warn_of_dropped
from gymq.responses.errors import MAX_NAME, InvalidRequest, warn_once
from gymq.responses.items import Item, function_call, function_call_output
from gymq.responses.tokens import token_fields

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

_LEADING_ROLES = ("system", "developer")
_OF_THE_CALL = ("type", "id", "call_id", "status")


def responses_to_chat(params: Mapping[str, Any], *, token_ids: bool = False, strict: bool = False) -> dict[str, Any]:
    """Convert create parameters (as `validate_params` returns them) into a Chat Completions request.

    The assistant's items between two other messages become one assistant message: reasoning in think tags, texts
    without separator, calls. With `token_ids` that message carries the token fields of its last item, if that has them.
    Calls of other tools, and their outputs, become calls of functions. Items that do not belong to a call, such as a
    search by the endpoint, are dropped with one warning for each type. Custom tools become functions. Fields that chat
    does not have (`truncation`, `include`, ...), hosted tools and the choice of a tool that is no function are dropped
    likewise.

    Args:
        strict: whether tools keep `strict: true`; vLLM would show it to the policy.

    Raises:
        InvalidRequest: chat has no form for an item or part of the request, a part that chat needs is null or empty,
            the conversation is continued by an id, or a tool is required that is not offered.
    """
    messages = _messages(params["input"], token_ids=token_ids)
    if params.get("instructions"):
        messages = _with_instructions(params["instructions"], messages)
    return {"messages": messages, **_settings(params, strict=strict)}


class _AssistantTurn:
    """The consecutive items of the assistant that become one message."""

    def __init__(self, *, token_ids: bool) -> None:
        self.token_ids = token_ids
        self.texts: list[str] = []
        self.refusals: list[str] = []
        self.calls: list[dict[str, Any]] = []
        self.tokens: dict[str, Any] | None = None

    def add(self, item: Item) -> None:
        if self.token_ids:
            self.tokens = token_fields(item)  # None: this was not sampled, and neither was the whole turn
        match item.get("type"):
            case "reasoning":
                self.texts += [f"<think>{text}</think>" for text in reasoning_texts(item) if text]
            case "function_call":
                self.calls.append(_call(item["call_id"], item["name"], item.get("arguments")))
            case _:
                content = item.get("content")
                self.texts.append(_assistant_text(content))
                if isinstance(content, list):
                    self.refusals += [part["refusal"] for part in content if part["type"] == "refusal"]
                for call in item.get("tool_calls") or ():
                    self.calls.append(_call(call["id"], call["function"]["name"], call["function"]["arguments"]))

    def message(self) -> dict[str, Any]:
        # OpenAI refuses null in a message without calls.
        content = "".join(self.texts) or (None if self.calls else "")
        message: dict[str, Any] = {"role": "assistant", "content": content}
        if self.refusals:
            message["refusal"] = "".join(self.refusals)
        if self.calls:
            message["tool_calls"] = self.calls
        if self.tokens:
            message.update(self.tokens)
        return message


def _messages(items: str | Iterable[Item], *, token_ids: bool) -> list[dict[str, Any]]:
    if isinstance(items, str):
        return [{"role": "user", "content": [{"type": "text", "text": items}]}]
    messages: list[dict[str, Any]] = []
    turn: _AssistantTurn | None = None
    for index, given in enumerate(items):
        item = as_function(given)
        if item is None:
            continue
        try:
            message = _other_message(item)
            if message is None:
                turn = turn or _AssistantTurn(token_ids=token_ids)
                turn.add(item)
                continue
        except InvalidRequest as error:
            raise error.within(f"input[{index}]") from None
        if turn is not None:
            messages.append(turn.message())
            turn = None
        messages.append(message)
    if turn is not None:
        messages.append(turn.message())
    return messages


def _other_message(item: Item) -> dict[str, Any] | None:
    """Return the message of an item of another role; None for an item of the assistant."""
    match item.get("type"):
        case "function_call" | "reasoning":
            return None
        case "function_call_output":
            content = _content(item["output"], ("input_text", "input_image"), "output")
            return {"role": "tool", "tool_call_id": item["call_id"], "content": content}
    role = item["role"]
    if role == "assistant":
        return None
    if role == "tool":
        content = _content(item["content"], ("input_text", "text"), "content")
        return {"role": role, "tool_call_id": item["tool_call_id"], "content": content}
    return {"role": role, "content": _content(item["content"], tuple(_PARTS), "content")}


def _is_of_chat(item: Item) -> bool:
    match item.get("type"):
        case "message" | "reasoning" | "function_call":
            return True
        case "function_call_output":
            return item.get("call_id") is not None
        case kind:
            return kind is None and "role" in item


def as_function(item: Item) -> Item | None:
    """Return an item, one of another tool as one of a function; None if chat has no form for it."""
    if _is_of_chat(item):
        return item
    if item.get("type") == CALL and isinstance(item.get("name"), str) and isinstance(item.get("call_id"), str):
        return call_as_function_call(item)
    kind, call_id = str(item.get("type") or "item_reference"), item.get("call_id")
    rest = {name: value for name, value in item.items() if name not in _OF_THE_CALL}
    if isinstance(call_id, str) and kind.endswith("_output"):
        output = rest.get("output")
        text = output if isinstance(output, str) else json.dumps(rest, ensure_ascii=False)
        return {**function_call_output(call_id, text)}
    if isinstance(call_id, str):
        name = rest.pop("name", None)
        named = name if isinstance(name, str) and name else kind.removesuffix("_call")
        return {**function_call(named, json.dumps(rest, ensure_ascii=False), call_id)}
    warn_once(f"items of type {kind[:MAX_NAME]!r} are dropped: Chat Completions has no place for them")
    return None


def _content(content: str | list[Item], types: tuple[str, ...], path: str) -> str | list[dict[str, Any]]:
    if isinstance(content, str):
        return content
    parts = []
    for index, part in enumerate(content):
        if part["type"] not in types:
            raise InvalidRequest(
                f"{path}[{index}].type", f"parts of type {part['type']} cannot be converted to chat here"
            )
        try:
            parts.append(_PARTS[part["type"]](part))
        except InvalidRequest as error:
            raise error.within(f"{path}[{index}]") from None
    return parts


def _text_part(part: Item) -> dict[str, Any]:
    return {"type": "text", "text": part["text"]}


def _image_part(part: Item) -> dict[str, Any]:
    url = part.get("image_url")
    if not url and part.get("file_id"):
        raise InvalidRequest("file_id", "an uploaded file cannot be converted to chat; send the image in image_url")
    if not url:
        raise InvalidRequest("image_url", "an image needs a URL or data URI")
    return {"type": "image_url", "image_url": {"url": url, "detail": part.get("detail") or "auto"}}


def _video_part(part: Item) -> dict[str, Any]:
    if not part["video_url"]:
        raise InvalidRequest("video_url", "a video needs a URL or data URI")
    return {"type": "video_url", "video_url": {"url": part["video_url"]}}


_PARTS = {"input_text": _text_part, "text": _text_part, "input_image": _image_part, "input_video": _video_part}


def _assistant_text(content: str | list[Item] | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    texts = []
    for index, part in enumerate(content):
        if "text" in part:
            texts.append(part["text"])
        elif part["type"] != "refusal":
            reason = f"parts of type {part['type']} cannot be converted to chat in an assistant message"
            raise InvalidRequest(f"content[{index}].type", reason)
    return "".join(texts)


def _call(call_id: str, name: str, arguments: str | None) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": sent_arguments(arguments)}}


def _with_instructions(instructions: str, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Put one system message in front: the instructions and the system and developer messages that follow at once."""
    texts = [instructions]
    rest = 0
    for message in messages:
        if message["role"] not in _LEADING_ROLES:
            break
        texts.append(_folded_text(message["content"], rest))
        rest += 1
    system = {"role": "system", "content": "\n\n".join(text for text in texts if text)}
    return [system, *messages[rest:]]


def _folded_text(content: str | list[dict[str, Any]], index: int) -> str:
    if isinstance(content, str):
        return content
    if any(part["type"] != "text" for part in content):
        raise InvalidRequest(
            f"input[{index}].content", "only text can be folded into the system message of `instructions`"
        )
    return "".join(part["text"] for part in content)


# Settings -------------------------------------------------------------------------------------------------------------


def _settings(params: Mapping[str, Any], *, strict: bool) -> dict[str, Any]:
    """Return the fields of a chat request except `messages`.

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
    settings.update(_text_settings(params.get("text") or {}))
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


def _text_settings(text: Mapping[str, Any]) -> dict[str, Any]:
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
