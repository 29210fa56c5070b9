"""From a chat request to the body that an engine gets. Nothing here does I/O."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gymq.workers.models.openai_model.endpoint import LENGTHS
from gymq.workers.models.vllm_model.audio import AUDIO_MEMBERS
from gymq.workers.models.vllm_model.engine_form import merged
from gymq.workers.models.vllm_model.options import VLLMOptions

from gymq.authoring import current_call
from gymq.ext.conversion.arguments import with_sent_arguments
from gymq.ext.conversion.from_chat import split_think_blocks
from gymq.protocol.messages import Priority
from gymq.protocol.tokens import TOKEN_FIELDS
from gymq.responses import InvalidRequest, Item
from gymq.responses.tokens import OPTIONAL_TOKEN_FIELDS

_UNKNOWN_TO_ENGINES = frozenset({*TOKEN_FIELDS, *OPTIONAL_TOKEN_FIELDS})

_FIRST = -1  # in vLLM lower numbers are first, and a request without one has 0

# What a prompt is made of; the rest of a body does not change its tokens.
_PROMPT_MEMBERS = (
    "model",
    "messages",
    "tools",
    "chat_template",
    "chat_template_kwargs",
    "add_generation_prompt",
    "add_special_tokens",
    "continue_final_message",
    "prompt",
    "mm_processor_kwargs",
    "required_prefix_token_ids",
)


def chat_body(request: Mapping[str, Any], options: VLLMOptions, audio_urls: Sequence[str] = ()) -> dict[str, Any]:
    """Return the body for `/chat/completions`.

    Args:
        request: a chat request whose messages are prepared; it is not changed.
        audio_urls: data URIs of what the last user says.

    Raises:
        InvalidRequest: `metadata` holds something unreadable, no reply can be as short as wanted, or more than one is
            wanted with token ids.
    """
    metadata = request.get("metadata") or {}
    asked = {name: value for name, value in request.items() if value is not None}
    asked["model"] = options.model
    if template := options.chat_template_kwargs | _object_in(metadata, "chat_template_kwargs"):
        asked["chat_template_kwargs"] = template
    if options.return_token_id_information:
        # A null `top_logprobs` would turn the log probs off.
        asked |= {"logprobs": True, "top_logprobs": 0}
        if options.engine == "vllm" and (options.request_prompt_and_generation_token_ids or options.tokenizer):
            asked["return_token_ids"] = True
    body = options.extra_body | _object_in(metadata, "extra_body") | asked
    if audio_urls:
        _add_audio(body, audio_urls)
    body |= options.sampling_overrides
    if options.return_token_id_information:
        body = merged(body, options.form.asked)
    if options.return_token_id_information and body.get("n") not in (None, 1):
        raise InvalidRequest("n", f"{body['n']} replies at a time; token ids are only tracked with one")
    _check_length(body)
    return {name: value for name, value in body.items() if name not in options.form.refused}


def responses_body(params: Mapping[str, Any], options: VLLMOptions) -> dict[str, Any]:
    """Return the body for `/responses`, for engines that speak this dialect themselves.

    Raises:
        InvalidRequest: `metadata` holds something unreadable, or audio, or no reply can be as short as wanted.
    """
    metadata = params.get("metadata") or {}
    for name in AUDIO_MEMBERS:
        if metadata.get(name) is not None:
            raise InvalidRequest(f"metadata.{name}", "audio can only be sent in chat, not with is_responses_native")
    asked = {name: value for name, value in params.items() if value is not None}
    if isinstance(asked["input"], list):
        asked["input"] = [
            with_sent_arguments({name: value for name, value in item.items() if name not in _UNKNOWN_TO_ENGINES})
            for item in asked["input"]
        ]
    asked["model"] = options.model
    if template := options.chat_template_kwargs | _object_in(metadata, "chat_template_kwargs"):
        asked["chat_template_kwargs"] = template
    body = options.extra_body | _object_in(metadata, "extra_body") | asked | options.sampling_overrides
    _check_length(body)
    return body


def placed(options: VLLMOptions) -> dict[str, Any]:
    """Return the fields of a body that give the current call its place in the engine's own queue."""
    is_urgent = current_call.get().precedence.priority is Priority.URGENT
    # Only urgent calls have one: an engine may refuse the field, and other engines count the other way round.
    return {"priority": _FIRST} if is_urgent and options.engine == "vllm" else {}


def tokenize_body(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body for `/tokenize` that gives the prompt tokens of a body for chat or for completions."""
    asked = {name: body[name] for name in _PROMPT_MEMBERS if body.get(name) is not None}
    if body.get("reasoning_effort") is not None:  # `/tokenize` has no such field: there templates get it like this
        asked["chat_template_kwargs"] = {
            **asked.get("chat_template_kwargs", {}),
            "reasoning_effort": body["reasoning_effort"],
        }
    return asked


def has_media(messages: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether there are images, videos or sounds among chat messages, which tokens cannot represent."""
    contents = (message.get("content") for message in messages)
    return any(part.get("type") != "text" for content in contents if isinstance(content, list) for part in content)


def ends_in_reasoning(body: Mapping[str, Any], options: VLLMOptions) -> bool:
    """Return whether the last message is a turn of the assistant without text and calls."""
    last = body["messages"][-1]
    if last["role"] != "assistant" or last.get("tool_calls"):
        return False
    texts = _texts(last.get("content"))
    if options.uses_reasoning_parser:
        texts = [split_think_blocks(text)[1] for text in texts]
    return not any(texts)


def prepared(messages: Iterable[Item], options: VLLMOptions) -> list[Item]:
    """Return messages as engines expect them, each by itself."""
    return [_message(message, options) for message in messages]


def _message(message: Item, options: VLLMOptions) -> Item:
    message = dict(message)
    if message["role"] == "developer" and options.replace_developer_role_with_system:
        message["role"] = "system"
    if message["role"] == "assistant" and options.uses_reasoning_parser:
        _separate_reasoning(message, options)
    return message


def _separate_reasoning(message: Item, options: VLLMOptions) -> None:
    """Take think blocks out of the text; the engine expects the first of them in a separate field."""
    if options.preserve_reasoning_in_assistant_content:
        return
    content = message.get("content")
    thoughts = [thought for text in _texts(content) for thought in split_think_blocks(text)[0]]
    if not thoughts:
        return
    if isinstance(content, str):
        message["content"] = split_think_blocks(content)[1]
    elif content is not None:
        message["content"] = [
            {**part, "text": split_think_blocks(part["text"])[1]} if "text" in part else part for part in content
        ]
    if options.uses_interleaved_reasoning:
        # Engines changed the name; each reads one and ignores the other.
        message["reasoning_content"] = message["reasoning"] = thoughts[0]


def _texts(content: str | list[Item] | None) -> list[str]:
    if isinstance(content, list):
        return [part["text"] for part in content if "text" in part]
    return [content] if content else []


def _object_in(metadata: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the object that is JSON text in a field of `metadata`; empty if there is none."""
    text = metadata.get(name)
    if text is None:
        return {}
    try:
        value = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise InvalidRequest(f"metadata.{name}", "expected the JSON text of an object")
    return value


def _check_length(body: Mapping[str, Any]) -> None:
    """Check the length of a reply; an engine reports a wrong one as it does a conversation that leaves no room."""
    least = body.get("min_tokens") or 0
    for name in LENGTHS:
        most = body.get(name)
        if isinstance(most, int) and isinstance(least, int) and most < max(1, least):
            raise InvalidRequest(
                name, f"{most} is less than 1" if most < 1 else f"{most} is less than min_tokens {least}"
            )


def _add_audio(body: dict[str, Any], audio_urls: Sequence[str]) -> None:
    """Put audio in front of what the last user said. The side channel leaves the request."""
    parts: list[Item] = [{"type": "audio_url", "audio_url": {"url": url}} for url in audio_urls]
    messages = list(body["messages"])
    for index in reversed(range(len(messages))):
        if messages[index]["role"] == "user":
            content = messages[index].get("content") or []
            said = [{"type": "text", "text": content}] if isinstance(content, str) else content
            messages[index] = {**messages[index], "content": [*parts, *said]}
            break
    else:
        messages.append({"role": "user", "content": parts})
    body["messages"] = messages
    metadata = {name: value for name, value in body.pop("metadata").items() if name not in AUDIO_MEMBERS}
    if metadata:
        body["metadata"] = metadata
