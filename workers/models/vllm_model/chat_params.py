"""Checking a Chat Completions request of a caller who speaks that dialect."""

from __future__ import annotations

from typing import Any

from gymq.responses import InvalidRequest

_ROLES = frozenset({"developer", "system", "user", "assistant", "tool"})
_KNOWN = frozenset(
    {
        "audio",
        "frequency_penalty",
        "logit_bias",
        "logprobs",
        "max_completion_tokens",
        "max_tokens",
        "messages",
        "metadata",
        "modalities",
        "model",
        "n",
        "parallel_tool_calls",
        "prediction",
        "presence_penalty",
        "prompt_cache_key",
        "reasoning_effort",
        "response_format",
        "safety_identifier",
        "seed",
        "service_tier",
        "stop",
        "store",
        "stream",
        "temperature",
        "tool_choice",
        "tools",
        "top_logprobs",
        "top_p",
        "user",
        "verbosity",
        "web_search_options",
    }
)


def known_chat_params(request: object) -> dict[str, Any]:
    """The members of a chat request that the dialect knows and the caller set; others are left out, as servers do.

    Raises:
        InvalidRequest: `messages` are no messages, `metadata` is no object, or the reply should be streamed.
    """
    if not isinstance(request, dict):
        raise InvalidRequest("", f"expected an object with the member `messages`, got {type(request).__name__}")
    messages = request.get("messages")
    if not isinstance(messages, list) or not messages:
        raise InvalidRequest("messages", "expected a list with at least one message")
    for index, message in enumerate(messages):
        _check_message(message, f"messages[{index}]")
    if not isinstance(request.get("metadata", {}), dict | None):
        raise InvalidRequest("metadata", "expected an object")
    if request.get("stream"):
        raise InvalidRequest("stream", "only false is possible here")
    return {name: value for name, value in request.items() if name in _KNOWN and value is not None}


def _check_message(message: object, path: str) -> None:
    if not isinstance(message, dict):
        raise InvalidRequest(path, f"expected a message (an object), got {type(message).__name__}")
    role = message.get("role")
    if role not in _ROLES:
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
