"""From a request of Anthropic's Messages API to Responses create parameters.

Source of the fields: https://docs.anthropic.com/en/api/messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec

from gymq.ext.conversion.arguments import arguments_text
from gymq.ext.conversion.items import function_tool, reasoning_item
from gymq.ext.conversion.notes import warn_of_dropped
from gymq.responses.errors import InvalidRequest, checked
from gymq.responses.items import Item, function_call, function_call_output


class _Text(msgspec.Struct, tag="text"):
    text: str


class _Base64(msgspec.Struct, tag="base64"):
    media_type: str
    data: str


class _Url(msgspec.Struct, tag="url"):
    url: str


class _PlainText(msgspec.Struct, tag="text"):
    data: str


class _Image(msgspec.Struct, tag="image"):
    source: _Base64 | _Url


class _Document(msgspec.Struct, tag="document"):
    source: _Base64 | _Url | _PlainText
    title: str | None = None


class _ToolResult(msgspec.Struct, tag="tool_result"):
    tool_use_id: str
    content: str | list[_Text | _Image | _Document] | None = None


class _Thinking(msgspec.Struct, tag="thinking"):
    thinking: str
    signature: str = ""


class _RedactedThinking(msgspec.Struct, tag="redacted_thinking"):
    data: str


class _ToolUse(msgspec.Struct, tag="tool_use"):
    id: str
    name: str
    input: dict[str, Any]


_Content = _Text | _Image | _Document
_BLOCKS_OF = {
    "user": (_Text, _Image, _Document, _ToolResult),
    "assistant": (_Text, _Thinking, _RedactedThinking, _ToolUse),
    "system": (_Text,),
}
_Block = _Text | _Image | _Document | _ToolResult | _Thinking | _RedactedThinking | _ToolUse


class _Message(msgspec.Struct):
    role: Literal["user", "assistant", "system"]
    content: str | list[_Block]


class _Tool(msgspec.Struct):
    name: str
    input_schema: dict[str, Any] | None = None
    description: str | None = None
    strict: bool | None = None
    type: str | None = None


class _ToolChoice(msgspec.Struct):
    type: Literal["auto", "any", "none", "tool"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class _Metadata(msgspec.Struct):
    user_id: str | None = None


class _Format(msgspec.Struct, tag="json_schema"):
    schema: dict[str, Any]


class _OutputConfig(msgspec.Struct):
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: _Format | None = None


class _Request(msgspec.Struct):
    messages: list[_Message]
    max_tokens: int
    model: str | None = None
    system: str | list[_Text] | None = None
    tools: list[_Tool] | None = None
    tool_choice: _ToolChoice | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop_sequences: list[str] | None = None
    metadata: _Metadata | None = None
    output_config: _OutputConfig | None = None
    mcp_servers: list[Any] | None = None


def from_anthropic_request(body: object) -> dict[str, Any]:
    """Convert a Messages request into create parameters, as `validate_params` takes them.

    Fields without a counterpart that do not affect the answer (`cache_control`, `service_tier`, `stream`, ...) and the
    budget of `thinking` are dropped, `stop_sequences` and `top_k` with a warning; `mcp_servers` are refused.

    Raises:
        InvalidRequest: a field is missing or does not fit, or a Responses request has no form for it.
    """
    try:
        request = checked(body, _Request)
    except InvalidRequest as fault:
        if fault.path.endswith(".type") and "content" in fault.path:
            known = "text, image, document, tool_use, tool_result, thinking and redacted_thinking"
            reason = f"{fault.reason}; a block of this type cannot be used here; known are {known}"
            raise InvalidRequest(fault.path, reason) from None
        raise
    _check_supported(request)
    params: dict[str, Any] = {"input": _items(request.messages), "max_output_tokens": request.max_tokens}
    if request.system:
        params["instructions"] = _joined(request.system)
    for name in ("model", "temperature", "top_p"):
        if getattr(request, name) is not None:
            params[name] = getattr(request, name)
    if request.tools:
        params["tools"] = [_tool(tool, f"tools[{index}]") for index, tool in enumerate(request.tools)]
    if request.tool_choice:
        params |= _tool_choice(request.tool_choice)
    if request.metadata and request.metadata.user_id is not None:
        params["user"] = request.metadata.user_id
    if request.output_config:
        params |= _output_config(request.output_config)
    return params


def _check_supported(request: _Request) -> None:
    if request.max_tokens < 1:
        raise InvalidRequest("max_tokens", f"expected 1 or more, got {request.max_tokens}")
    if request.mcp_servers:
        raise InvalidRequest("mcp_servers", "gymq does not call MCP servers of a request")
    warn_of_dropped({"stop_sequences": request.stop_sequences, "top_k": request.top_k}, "the Responses API")


def _items(messages: Sequence[_Message]) -> list[Item]:
    if not messages:
        raise InvalidRequest("messages", "expected a list with at least one message")
    items: list[Item] = []
    for index, message in enumerate(messages):
        try:
            items += _message_items(message)
        except InvalidRequest as error:
            raise error.within(f"messages[{index}]") from None
    return items


def _message_items(message: _Message) -> Iterator[Item]:
    """Yield the items of a message, in the order of its blocks; neighbouring texts and images are one message."""
    if isinstance(message.content, str):
        yield {"type": "message", "role": message.role, "content": message.content}
        return
    said: list[_Content] = []
    for index, block in enumerate(message.content):
        _check_role(message.role, block, f"content[{index}]")
        if isinstance(block, _Content):
            said.append(block)
            continue
        yield from _said(message.role, said)
        said = []
        yield _item(block)
    yield from _said(message.role, said)


def _said(role: str, blocks: Sequence[_Content]) -> Iterator[Item]:
    if not blocks:
        return
    if role == "assistant":
        text = "".join(block.text for block in blocks if isinstance(block, _Text))
        yield {"type": "message", "role": role, "content": text}
    else:
        yield {"type": "message", "role": role, "content": [_part(block) for block in blocks]}


def _check_role(role: str, block: _Block, path: str) -> None:
    if not isinstance(block, _BLOCKS_OF[role]):
        kind = block.__struct_config__.tag
        raise InvalidRequest(f"{path}.type", f"a message of role {role} cannot contain a block of type {kind}")


def _item(block: _ToolResult | _Thinking | _RedactedThinking | _ToolUse) -> Item:
    match block:
        case _ToolResult():
            return {**function_call_output(block.tool_use_id, ""), "output": _output(block.content)}
        case _ToolUse():
            return {**function_call(block.name, arguments_text(block.input), block.id)}
        case _Thinking():
            return reasoning_item([block.thinking], block.signature)
        case _RedactedThinking():
            return reasoning_item([], block.data)


def _output(content: str | list[_Content] | None) -> str | list[Item]:
    if content is None or isinstance(content, str):
        return content or ""
    if all(isinstance(block, _Text) for block in content) and len(content) <= 1:
        return "".join(block.text for block in content if isinstance(block, _Text))
    return [_part(block) for block in content]


def _part(block: _Content) -> Item:
    match block:
        case _Text():
            return {"type": "input_text", "text": block.text}
        case _Image():
            return {"type": "input_image", "image_url": _address(block.source), "detail": "auto"}
        case _Document(source=_PlainText(data=text)):
            return {"type": "input_text", "text": text}
        case _Document(source=_Url(url=url)):
            return {"type": "input_file", "file_url": url}
        case _Document(source=_Base64() as source):
            return {"type": "input_file", "filename": block.title or "document", "file_data": _address(source)}
    raise AssertionError(block)


def _address(source: _Base64 | _Url) -> str:
    return source.url if isinstance(source, _Url) else f"data:{source.media_type};base64,{source.data}"


def _joined(system: str | list[_Text]) -> str:
    return system if isinstance(system, str) else "\n\n".join(block.text for block in system)


def _tool(tool: _Tool, path: str) -> Item:
    if tool.type not in (None, "custom"):
        raise InvalidRequest(f"{path}.type", f"{tool.type} is a server tool; only tools with a schema can be used")
    if tool.input_schema is None:
        raise InvalidRequest(f"{path}.input_schema", "missing; a tool needs the JSON schema of its input")
    return function_tool(tool.name, tool.input_schema, strict=tool.strict, description=tool.description)


def _tool_choice(choice: _ToolChoice) -> dict[str, Any]:
    params: dict[str, Any] = {}
    if choice.disable_parallel_tool_use is not None:
        params["parallel_tool_calls"] = not choice.disable_parallel_tool_use
    if choice.type == "tool":
        if choice.name is None:
            raise InvalidRequest("tool_choice.name", "missing; which tool?")
        return {**params, "tool_choice": {"type": "function", "name": choice.name}}
    return {**params, "tool_choice": "required" if choice.type == "any" else choice.type}


def _output_config(config: _OutputConfig) -> dict[str, Any]:
    params: dict[str, Any] = {}
    if config.effort is not None:
        params["reasoning"] = {"effort": config.effort}
    if config.format is not None:
        schema = {"type": "json_schema", "name": "output", "schema": config.format.schema, "strict": True}
        params["text"] = {"format": schema}
    return params
