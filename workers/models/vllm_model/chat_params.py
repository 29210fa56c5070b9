"""Checking a Chat Completions request of a caller who speaks that dialect."""

from __future__ import annotations

from typing import Any

import msgspec

from gymq.ext.conversion.arguments import sent_arguments
from gymq.responses import InvalidRequest
from gymq.responses.errors import checked
from gymq.responses.schema import ChatToolCall

_ROLES = frozenset({"developer", "system", "user", "assistant", "tool"})


class _Settings(msgspec.Struct):
    """The fields that the dialect knows beside `messages`. Those of type Any are left to the engine."""

    audio: Any = None
    frequency_penalty: float | None = None
    logit_bias: Any = None
    logprobs: bool | None = None
    max_completion_tokens: int | None = None
    max_tokens: int | None = None
    metadata: dict[str, Any] | None = None
    modalities: Any = None
    model: str | None = None
    n: int | None = None
    parallel_tool_calls: bool | None = None
    prediction: Any = None
    presence_penalty: float | None = None
    prompt_cache_key: str | None = None
    reasoning_effort: str | None = None
    response_format: Any = None
    safety_identifier: str | None = None
    seed: int | None = None
    service_tier: str | None = None
    stop: str | list[str] | None = None
    store: bool | None = None
    stream: bool | None = None
    temperature: float | None = None
    tool_choice: str | dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None
    top_logprobs: int | None = None
    top_p: float | None = None
    user: str | None = None
    verbosity: str | None = None
    web_search_options: Any = None


def known_chat_params(request: object) -> dict[str, Any]:
    """Return the known fields of a chat request that the caller set; others are left out, as servers do.

    Numbers and flags written as text are put right, as in a Responses request.

    Raises:
        InvalidRequest: `messages` are not messages, a field is of another type, or the reply should be streamed.
    """
    if not isinstance(request, dict):
        raise InvalidRequest("", f"expected an object with the field `messages`, got {type(request).__name__}")
    messages = request.get("messages")
    if not isinstance(messages, list) or not messages:
        raise InvalidRequest("messages", "expected a list with at least one message")
    for index, message in enumerate(messages):
        _check_message(message, f"messages[{index}]")
    settings = checked(request, _Settings, strict=False)
    if settings.stream:
        raise InvalidRequest("stream", "only false is possible here")
    known = {"messages": list(map(_with_sent_arguments, messages))}
    for name in _Settings.__struct_fields__:
        value = request.get(name)
        if value is not None:
            known[name] = getattr(settings, name) if isinstance(value, str | int | float) else value
    return known


def _with_sent_arguments(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message whose calls have arguments that every engine takes."""
    if not message.get("tool_calls"):
        return message
    calls = [
        {**call, "function": {**call["function"], "arguments": sent_arguments(call["function"]["arguments"])}}
        for call in message["tool_calls"]
    ]
    return {**message, "tool_calls": calls}


def _check_message(message: object, path: str) -> None:
    if not isinstance(message, dict):
        raise InvalidRequest(path, f"expected a message (an object), got {type(message).__name__}")
    role = message.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        raise InvalidRequest(f"{path}.role", f"{role!r} is not a role; expected one of {', '.join(sorted(_ROLES))}")
    content = message.get("content")
    if isinstance(content, list):
        for index, part in enumerate(content):
            if not isinstance(part, dict) or not isinstance(part.get("type"), str):
                raise InvalidRequest(f"{path}.content[{index}]", "expected a part, an object with `type`")
            if part["type"] == "text" and not isinstance(part.get("text"), str):
                raise InvalidRequest(f"{path}.content[{index}].text", "expected text")
    elif not isinstance(content, str) and (content is not None or role != "assistant"):
        raise InvalidRequest(f"{path}.content", "expected text or a list of parts")
    if role == "tool" and not isinstance(message.get("tool_call_id"), str):
        raise InvalidRequest(f"{path}.tool_call_id", "expected the id of the call that is answered")
    if message.get("tool_calls") is not None:
        checked(message["tool_calls"], list[ChatToolCall], path=f"{path}.tool_calls")
