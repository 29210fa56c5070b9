"""The schema of items: input and output of the Responses API share one union.

The structs only check items: callers keep their dicts, including unknown fields.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from gymq.responses.errors import InvalidRequest, checked
from gymq.responses.items import Item
from gymq.responses.tokens import token_fields


class _InputText(msgspec.Struct, tag="input_text"):
    text: str


class _InputImage(msgspec.Struct, tag="input_image"):
    image_url: str | None = None
    file_id: str | None = None
    detail: str | None = None


class _InputVideo(msgspec.Struct, tag="input_video"):
    video_url: str


class _InputFile(msgspec.Struct, tag="input_file"):
    pass


class _InputAudio(msgspec.Struct, tag="input_audio"):
    pass


class _OutputText(msgspec.Struct, tag="output_text"):
    text: str


class _Refusal(msgspec.Struct, tag="refusal"):
    refusal: str


class _ChatText(msgspec.Struct, tag="text"):
    text: str


class _SummaryText(msgspec.Struct, tag="summary_text"):
    text: str


class _ReasoningText(msgspec.Struct, tag="reasoning_text"):
    text: str


class ChatFunction(msgspec.Struct):
    """The function of a Chat Completions tool call."""

    name: str
    arguments: str


class ChatToolCall(msgspec.Struct):
    """A tool call of a Chat Completions message."""

    id: str
    function: ChatFunction
    type: Literal["function"] = "function"


class _Message(msgspec.Struct):
    content: str | list[_InputText | _InputImage | _InputVideo | _InputFile | _InputAudio]


class _AssistantMessage(msgspec.Struct):
    content: str | list[_InputText | _InputImage | _InputVideo | _InputFile | _InputAudio | _OutputText | _Refusal]
    id: str | None = None
    status: str | None = None


class _AssistantChatMessage(msgspec.Struct):
    """An assistant message of a chat history with calls; its content may be null."""

    tool_calls: list[ChatToolCall]
    content: str | list[_InputText | _OutputText | _Refusal | _ChatText] | None = None


class _ToolChatMessage(msgspec.Struct):
    tool_call_id: str
    content: str | list[_InputText | _ChatText]


class _FunctionCall(msgspec.Struct):
    call_id: str
    name: str
    # Models sometimes omit them. The agent then answers the call with an error that the model can read.
    arguments: str | None = None
    id: str | None = None
    status: str | None = None


class _FunctionCallOutput(msgspec.Struct, kw_only=True):
    call_id: str | None = None
    output: str | list[_InputText | _InputImage | _InputFile]


class _Reasoning(msgspec.Struct):
    summary: list[_SummaryText]
    content: list[_ReasoningText] | None = None
    encrypted_content: str | None = None
    id: str | None = None


class _Opaque(msgspec.Struct):
    """An item of a hosted or client-side tool, which is passed on unchecked."""


_MESSAGES: dict[object, type[msgspec.Struct]] = {
    "user": _Message,
    "system": _Message,
    "developer": _Message,
    "assistant": _AssistantMessage,
    "tool": _ToolChatMessage,
}

_ITEMS: dict[object, type[msgspec.Struct]] = {
    "function_call": _FunctionCall,
    "function_call_output": _FunctionCallOutput,
    "reasoning": _Reasoning,
    **dict.fromkeys(
        (
            "additional_tools",
            "apply_patch_call",
            "apply_patch_call_output",
            "code_interpreter_call",
            "compaction",
            "compaction_trigger",
            "computer_call",
            "computer_call_output",
            "configuration_update",
            "custom_tool_call",
            "custom_tool_call_output",
            "file_search_call",
            "image_generation_call",
            "item_reference",
            "local_shell_call",
            "local_shell_call_output",
            "mcp_approval_request",
            "mcp_approval_response",
            "mcp_call",
            "mcp_list_tools",
            "program",
            "program_output",
            "shell_call",
            "shell_call_output",
            "tool_search_call",
            "tool_search_output",
            "web_search_call",
        ),
        _Opaque,
    ),
}


def is_item_type(kind: object) -> bool:
    """Return whether items may have this `type`."""
    return kind == "message" or (isinstance(kind, str) and kind in _ITEMS)


def check_items(items: object, path: str) -> list[Item]:
    """Check a list of items; `path` is its path in the request.

    The items of the result are the given dicts, unless something had to be converted: token ids written as text become
    numbers, and reasoning items lose `status`, which OpenAI returns but refuses as input.

    Raises:
        InvalidRequest: a field does not fit; the error has the path of the first one.
    """
    if not isinstance(items, list):
        raise InvalidRequest(path, f"expected a list of items, got {type(items).__name__}")
    result = []
    for index, item in enumerate(items):
        try:
            result.append(_check_item(item))
        except InvalidRequest as error:
            raise error.within(f"{path}[{index}]") from None
    return result


def _check_item(item: object) -> Item:
    if not isinstance(item, dict):
        raise InvalidRequest("", f"expected an item (an object), got {type(item).__name__}")
    schema = _schema_of(item)
    checked(item, schema)
    if schema is _FunctionCallOutput or schema is _Opaque:
        return item
    tokens = token_fields(item)
    if tokens is not None and any(item[name] is not value for name, value in tokens.items()):
        item = {**item, **tokens}
    if schema is _Reasoning and "status" in item:
        item = {name: value for name, value in item.items() if name != "status"}
    return item


def _schema_of(item: Item) -> type[msgspec.Struct]:
    kind = item.get("type")
    if kind is None and item.keys() <= {"type", "id"} and isinstance(item.get("id"), str):
        return _Opaque  # a reference to an item, whose type may be absent
    if kind is None or kind == "message":
        role = item.get("role")
        if role is None:
            reason = "missing in a message" if kind else "missing, and so is `type`; an item needs one of them"
            raise InvalidRequest("role", reason)
        if role == "assistant" and item.get("tool_calls") is not None:
            return _AssistantChatMessage
        if isinstance(role, str) and role in _MESSAGES:
            return _MESSAGES[role]
        raise InvalidRequest("role", f"{role!r} is not a role; expected one of {', '.join(map(str, _MESSAGES))}")
    if isinstance(kind, str) and kind in _ITEMS:
        return _ITEMS[kind]
    raise InvalidRequest("type", f"{kind!r} is not an item type; expected message, {', '.join(map(str, _ITEMS))}")
