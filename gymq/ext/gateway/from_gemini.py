"""From a request of Gemini's generateContent to Responses create parameters.

Source of the fields: https://ai.google.dev/api/generate-content and https://ai.google.dev/api/caching#Content.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from gymq.ext.conversion.arguments import arguments_text
from gymq.ext.conversion.items import function_tool, reasoning_item
from gymq.ext.conversion.notes import warn_of_dropped
from gymq.responses.errors import InvalidRequest, checked, warn_once
from gymq.responses.items import Item, function_call, function_call_output

# Fields whose values belong to the caller, so their keys are not renamed.
_OPAQUE = frozenset(
    {"args", "response", "parameters", "parametersJsonSchema", "responseSchema", "responseJsonSchema", "labels"}
)
_SCHEMA_TYPES = frozenset({"ARRAY", "BOOLEAN", "INTEGER", "NULL", "NUMBER", "OBJECT", "STRING"})
_OF_VALUES = frozenset({"const", "default", "enum", "example", "examples"})  # keywords without schemas in them
_EFFORTS = {"MINIMAL": "minimal", "LOW": "low", "MEDIUM": "medium", "HIGH": "high"}


class _Blob(msgspec.Struct, rename="camel"):
    mime_type: str
    data: str


class _File(msgspec.Struct, rename="camel"):
    file_uri: str
    mime_type: str | None = None


class _FunctionCall(msgspec.Struct):
    name: str
    args: dict[str, Any] = {}
    id: str | None = None


class _FunctionResponse(msgspec.Struct):
    name: str
    response: dict[str, Any] = {}
    id: str | None = None
    parts: list[Any] | None = None


class _Part(msgspec.Struct, rename="camel"):
    text: str | None = None
    thought: bool = False
    thought_signature: str | None = None
    inline_data: _Blob | None = None
    file_data: _File | None = None
    function_call: _FunctionCall | None = None
    function_response: _FunctionResponse | None = None


class _Content(msgspec.Struct):
    parts: list[_Part] = []
    role: Literal["user", "model", "function", "system"] = "user"


class _Function(msgspec.Struct, rename="camel"):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    parameters_json_schema: dict[str, Any] | None = None


class _Calling(msgspec.Struct, rename="camel"):
    mode: Literal["MODE_UNSPECIFIED", "AUTO", "ANY", "NONE", "VALIDATED"] = "AUTO"
    allowed_function_names: list[str] = []


class _ToolConfig(msgspec.Struct, rename="camel"):
    function_calling_config: _Calling | None = None


class _Thinking(msgspec.Struct, rename="camel"):
    thinking_level: str | None = None


class _Generation(msgspec.Struct, rename="camel"):
    temperature: float | None = None
    top_p: float | None = None
    top_k: float | None = None
    max_output_tokens: int | None = None
    stop_sequences: list[str] | None = None
    candidate_count: int | None = None
    response_mime_type: str | None = None
    response_schema: dict[str, Any] | None = None
    response_json_schema: dict[str, Any] | None = None
    thinking_config: _Thinking | None = None


class _Request(msgspec.Struct, rename="camel"):
    contents: list[_Content] | _Content
    system_instruction: _Content | str | None = None
    tools: list[dict[str, Any]] | None = None
    tool_config: _ToolConfig | None = None
    generation_config: _Generation | None = None
    cached_content: str | None = None
    model: str | None = None


def from_gemini_request(body: object) -> dict[str, Any]:
    """Convert a generateContent request into create parameters, as `validate_params` takes them.

    Names may be in camel case or snake case, as Google accepts both. `topK`, which Google's own clients always
    send, `stopSequences` and tools of Google's own are dropped with a warning; other fields that would change the
    answer are refused.

    Args:
        body: the request's body; its `model` is that of the path.

    Raises:
        InvalidRequest: a field is missing or does not fit, or a Responses request has no form for it.
    """
    request = checked(_camel(body), _Request)
    if request.cached_content is not None:
        raise InvalidRequest("cachedContent", "contents are not cached here; send them")
    contents = request.contents if isinstance(request.contents, list) else [request.contents]
    params: dict[str, Any] = {"input": _items(contents)}
    if request.model is not None:
        params["model"] = request.model
    if request.system_instruction:
        params["instructions"] = _text_of(request.system_instruction)
    tools = list(_tools(request.tools or ()))
    if tools:
        params["tools"] = tools
    calling = None if request.tool_config is None else request.tool_config.function_calling_config
    if calling is not None and tools:
        params["tool_choice"] = _tool_choice(calling)
    if request.generation_config is not None:
        params |= _generation(request.generation_config)
    return params


def _camel(value: Any) -> Any:
    """Return an object with the names of its fields in camel case."""
    if isinstance(value, list):
        return [_camel(element) for element in value]
    if not isinstance(value, dict):
        return value
    found = {}
    for name, field in value.items():
        first, *others = name.split("_")
        camel = first + "".join(part.capitalize() for part in others) if first else name
        found[camel] = field if camel in _OPAQUE else _camel(field)
    return found


def _items(contents: Sequence[_Content]) -> list[Item]:
    if not contents:
        raise InvalidRequest("contents", "expected at least one content")
    items: list[Item] = []
    unanswered: list[tuple[str, str]] = []  # names and ids of calls without a response yet
    for index, content in enumerate(contents):
        for position, part in enumerate(content.parts):
            try:
                items += _part_items(content.role, part, f"call_{index}_{position}", unanswered)
            except InvalidRequest as error:
                raise error.within(f"contents[{index}].parts[{position}]") from None
    return list(_joined(items))


def _part_items(role: str, part: _Part, own_id: str, unanswered: list[tuple[str, str]]) -> Iterator[Item]:
    """Yield the item of a part.

    Args:
        own_id: id of a call without one.
    """
    if part.function_call is not None:
        call = part.function_call
        call_id = call.id or own_id
        unanswered.append((call.name, call_id))
        yield {**function_call(call.name, arguments_text(call.args), call_id)}
    elif part.function_response is not None:
        answered = part.function_response
        if answered.parts:
            raise InvalidRequest("functionResponse.parts", "only `response` of a function can be read")
        yield {**function_call_output(_id_of(answered, unanswered), _output(answered.response))}
    elif part.thought:
        yield reasoning_item([part.text] if part.text else [], part.thought_signature or "")
    elif role == "model":
        if part.text is None:
            raise InvalidRequest("", "a part of the model must be a text, a thought or a function call")
        yield {"type": "message", "role": "assistant", "content": part.text}
    else:
        yield {"type": "message", "role": "user", "content": [_said(part)]}


def _id_of(answered: _FunctionResponse, unanswered: list[tuple[str, str]]) -> str:
    """Return the id of the call that is answered: the one given, or that of the first open call of this name."""
    for known in unanswered:
        if answered.id in (None, known[1]) and known[0] == answered.name:
            unanswered.remove(known)
            return known[1]
    raise InvalidRequest("functionResponse", f"answers no call of {answered.name!r:.80} before it")


def _said(part: _Part) -> Item:
    if part.text is not None:
        return {"type": "input_text", "text": part.text}
    if part.inline_data is not None:
        return _media(part.inline_data.mime_type, f"data:{part.inline_data.mime_type};base64,{part.inline_data.data}")
    if part.file_data is not None:
        return _media(part.file_data.mime_type or "", part.file_data.file_uri)
    raise InvalidRequest("", "a part must be a text, inlineData, fileData, a functionCall or a functionResponse")


def _media(mime_type: str, address: str) -> Item:
    if mime_type.startswith("image/"):
        return {"type": "input_image", "image_url": address, "detail": "auto"}
    if address.startswith("data:"):
        return {"type": "input_file", "filename": "document", "file_data": address}
    return {"type": "input_file", "file_url": address}


def _joined(items: Sequence[Item]) -> Iterator[Item]:
    """Yield the items with neighbouring messages of one role as one; a single text as plain text."""
    last: Item | None = None
    for item in items:
        if last is not None and item["type"] == last["type"] == "message" and item["role"] == last["role"]:
            last = {**last, "content": last["content"] + item["content"]}
            continue
        if last is not None:
            yield _plain(last)
        last = item
    if last is not None:
        yield _plain(last)


def _plain(item: Item) -> Item:
    content = item.get("content")
    if isinstance(content, list) and len(content) == 1 and content[0]["type"] == "input_text":
        return {**item, "content": content[0]["text"]}
    return item


def _output(response: Mapping[str, Any]) -> str:
    """Return the output of a function; Google's clients put text into the field `output`."""
    only = response.get("output") if len(response) == 1 else None
    return only if isinstance(only, str) else json.dumps(response, ensure_ascii=False)


def _text_of(instruction: _Content | str) -> str:
    if isinstance(instruction, str):
        return instruction
    return "\n\n".join(part.text for part in instruction.parts if part.text)


def _tools(tools: Sequence[dict[str, Any]]) -> Iterator[Item]:
    for index, tool in enumerate(tools):
        for name in tool.keys() - {"functionDeclarations"}:
            warn_once(f"a request offers Google's tool {name:.60}, which is dropped: only functions can be offered")
        path = f"tools[{index}].functionDeclarations"
        for function in checked(tool.get("functionDeclarations") or [], list[_Function], path=path):
            parameters = function.parameters_json_schema or _json_schema(function.parameters)
            yield function_tool(function.name, parameters, strict=False, description=function.description)


def _json_schema(schema: Any) -> Any:
    """Return a schema of Google's, whose types are in capitals, as JSON Schema."""
    if isinstance(schema, list):
        return [_json_schema(element) for element in schema]
    if not isinstance(schema, dict):
        return schema
    found: dict[str, Any] = {}
    for name, value in schema.items():
        if name == "properties" and isinstance(value, dict):
            found[name] = {key: _json_schema(of_property) for key, of_property in value.items()}
        elif name == "type" and isinstance(value, str) and value in _SCHEMA_TYPES:
            found[name] = value.lower()
        else:
            found[name] = value if name in _OF_VALUES else _json_schema(value)
    return found


def _tool_choice(calling: _Calling) -> str | dict[str, str]:
    if calling.mode == "ANY":
        names = calling.allowed_function_names
        return {"type": "function", "name": names[0]} if len(names) == 1 else "required"
    return "none" if calling.mode == "NONE" else "auto"


def _generation(config: _Generation) -> dict[str, Any]:
    if config.candidate_count not in (None, 1):
        raise InvalidRequest("generationConfig.candidateCount", "only 1 candidate can be asked for")
    dropped = {"generationConfig.stopSequences": config.stop_sequences, "generationConfig.topK": config.top_k}
    warn_of_dropped(dropped, "the Responses API")
    names = ("temperature", "top_p", "max_output_tokens")
    params = {name: value for name in names if (value := getattr(config, name)) is not None}
    effort = None if config.thinking_config is None else _EFFORTS.get(config.thinking_config.thinking_level or "")
    if effort is not None:
        params["reasoning"] = {"effort": effort}
    schema = config.response_json_schema or _json_schema(config.response_schema)
    if schema:
        params["text"] = {"format": {"type": "json_schema", "name": "output", "schema": schema, "strict": False}}
    elif config.response_mime_type == "application/json":
        params["text"] = {"format": {"type": "json_object"}}
    return params
