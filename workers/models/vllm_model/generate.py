"""SGLang's native `/generate`: tokens in, tokens out. Nothing here does I/O but `parsed`."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from gymq.responses import InvalidReply, InvalidRequest
from gymq.responses.errors import checked
from gymq.responses.items import new_id

GENERATE = "/generate"
_REASONING = "/separate_reasoning"
_CALLS = "/parse_function_call"

# Settings of sampling, and their names here; None: the engine knows them under the same name.
_SAMPLING: Mapping[str, str | None] = {
    "ebnf": None,
    "frequency_penalty": None,
    "ignore_eos": None,
    "logit_bias": None,
    "min_p": None,
    "min_tokens": "min_new_tokens",
    "no_stop_trim": None,
    "presence_penalty": None,
    "regex": None,
    "repetition_penalty": None,
    "seed": "sampling_seed",
    "skip_special_tokens": None,
    "stop": None,
    "stop_regex": None,
    "stop_token_ids": None,
    "temperature": None,
    "top_k": None,
    "top_p": None,
}
# Fields beside the sampling that both know.
_SHARED = ("cache_salt", "extra_key", "lora_path", "priority", "rid", "session_id", "return_routed_experts")
_LENGTHS = ("max_completion_tokens", "max_tokens")

Native = Callable[[str, Mapping[str, Any]], Awaitable[dict[str, Any]]]
"""Sends a body to a path of the engine's own."""


class _MetaInfo(msgspec.Struct):
    id: str
    finish_reason: dict[str, Any]
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    output_token_logprobs: Any = None


class _Generated(msgspec.Struct):
    meta_info: _MetaInfo
    output_ids: list[int]
    text: str = ""


class _Separated(msgspec.Struct):
    text: str
    reasoning_text: str | None = None


class _Call(msgspec.Struct):
    name: str
    parameters: str


class _Parsed(msgspec.Struct):
    normal_text: str
    calls: list[_Call] | UnsetType = UNSET


def generate_body(body: Mapping[str, Any], prompt: list[int]) -> dict[str, Any]:
    """Return the body for `/generate` that matches a chat body, with its prompt in tokens.

    Raises:
        InvalidRequest: the chat wants what only the engine's chat can give.
    """
    choice = body.get("tool_choice")
    if choice not in (None, "auto", "none"):
        raise InvalidRequest("tool_choice", "with use_generate_api a call of a tool cannot be demanded")
    sampling = {name or given: body[given] for given, name in _SAMPLING.items() if body.get(given) is not None}
    # Without a length the engine stops after 128 tokens; with null it goes on to the end of the context.
    sampling["max_new_tokens"] = next((body[name] for name in _LENGTHS if body.get(name) is not None), None)
    sampling |= _constraint(body.get("response_format"))
    if offered_tools(body):
        sampling["skip_special_tokens"] = False  # calls may begin with one
    shared = {name: body[name] for name in _SHARED if body.get(name) is not None}
    return {**shared, "input_ids": prompt, "sampling_params": sampling, "return_logprob": True, "logprob_start_len": -1}


def offered_tools(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the tools that the model may call."""
    return [] if body.get("tool_choice") == "none" else body.get("tools") or []


def _constraint(response_format: Any) -> dict[str, Any]:
    match response_format:
        case {"type": "json_schema", "json_schema": {"schema": dict() as schema}}:
            return {"json_schema": json.dumps(schema)}
        case {"type": "json_object"}:
            return {"json_schema": '{"type": "object"}'}
        case None | {"type": "text"}:
            return {}
    raise InvalidRequest("response_format", "with use_generate_api only text, json_object and json_schema")


async def parsed(
    answer: dict[str, Any],
    native: Native,
    *,
    model: str,
    tools: list[dict[str, Any]],
    reasoning_parser: str | None,
    tool_call_parser: str | None,
) -> dict[str, Any]:
    """Return the answer of `/generate` as a chat completion; the engine's own parsers take its text apart.

    Args:
        tools: those that were offered.
        reasoning_parser: the engine's parser of reasoning; None: reasoning stays in the text.
        tool_call_parser: the engine's parser of calls; None: calls stay in the text.

    Raises:
        InvalidReply: with the path of the first field that does not fit.
    """
    given = checked(answer, _Generated, InvalidReply)
    text, meta = given.text, given.meta_info
    message: dict[str, Any] = {"role": "assistant"}
    if reasoning_parser is not None:
        asked: dict[str, Any] = {"text": text, "reasoning_parser": reasoning_parser}
        separated = checked(await native(_REASONING, asked), _Separated, InvalidReply)
        text, message["reasoning_content"] = separated.text, separated.reasoning_text or None
    finish_reason = meta.finish_reason.get("type")
    if tool_call_parser is not None and tools:
        asked = {"text": text, "tools": tools, "tool_call_parser": tool_call_parser}
        found = checked(await native(_CALLS, asked), _Parsed, InvalidReply)
        text = found.normal_text
        if found.calls:
            message["tool_calls"] = [_tool_call(call) for call in found.calls]
            finish_reason = "tool_calls" if finish_reason == "stop" else finish_reason
    message["content"] = text
    choice = {
        "index": 0,
        "message": message,
        "finish_reason": finish_reason,
        "token_ids": given.output_ids,
        "meta_info": {"output_token_logprobs": meta.output_token_logprobs},
    }
    return {
        "id": meta.id,
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model,
        "choices": [choice],
        "usage": _usage(meta),
    }


def _tool_call(call: _Call) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.parameters}
    return {"id": new_id("call"), "type": "function", "function": function}


def _usage(meta: _MetaInfo) -> dict[str, Any]:
    usage: dict[str, Any] = {
        "prompt_tokens": meta.prompt_tokens,
        "completion_tokens": meta.completion_tokens,
        "total_tokens": meta.prompt_tokens + meta.completion_tokens,
    }
    if meta.cached_tokens is not None:
        usage["prompt_tokens_details"] = {"cached_tokens": meta.cached_tokens}
    if meta.reasoning_tokens is not None:
        usage["completion_tokens_details"] = {"reasoning_tokens": meta.reasoning_tokens}
    return usage
