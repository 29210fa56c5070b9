"""From a chat completion to a Responses object."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Annotated, Any, Literal

import msgspec

from gymq.ext.conversion.custom_tools import calls_of_custom_tools
from gymq.ext.conversion.items import reasoning_item
from gymq.ext.conversion.mending import mended_completion
from gymq.ext.conversion.usage import usage_from_chat
from gymq.protocol.tokens import GENERATION_FIELD, LOG_PROB_FIELD
from gymq.responses.errors import InvalidReply, InvalidRequest, checked
from gymq.responses.items import NO_ARGUMENTS, Item, new_id
from gymq.responses.reply import MAX_COUNT
from gymq.responses.schema import ChatFunction
from gymq.responses.tokens import token_fields

_OPENING, _CLOSING = "<think>", "</think>"

# Parameters of the request that a Responses object repeats if they were given.
_ECHOED = (
    "background",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "previous_response_id",
    "prompt",
    "reasoning",
    "service_tier",
    "temperature",
    "text",
    "top_logprobs",
    "top_p",
    "truncation",
    "user",
)

_INCOMPLETE_REASONS = {"length": "max_output_tokens", "content_filter": "content_filter"}
_FINISH_REASONS = frozenset({None, "stop", "tool_calls", "length", "content_filter", "abort", "error"})
_NO_REPLY = frozenset({"abort", "error"})  # not the model ended it: engines for new weights, gateways by a fault


class _ToolCall(msgspec.Struct):
    function: ChatFunction
    id: str | None = None  # Gemini's is empty, also of parallel calls
    type: Literal["function"] = "function"


class _Message(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None
    annotations: Any = None
    reasoning_content: Any = None
    reasoning: Any = None  # another name for it
    function_call: None = None  # an older form of calls
    tool_calls: list[_ToolCall] | None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None


_Count = Annotated[int, msgspec.Meta(ge=0, lt=MAX_COUNT)]


class _PromptDetails(msgspec.Struct):
    cached_tokens: _Count | None = None


class _CompletionDetails(msgspec.Struct):
    reasoning_tokens: _Count | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: _Count
    total_tokens: _Count
    completion_tokens: _Count | None = None  # Gemini leaves it out where all tokens were reasoning
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _CompletionDetails | None = None


class _Completion(msgspec.Struct):
    choices: list[_Choice]
    created: Annotated[float, msgspec.Meta(ge=0, lt=MAX_COUNT)]
    usage: _Usage | None = None


def readable_completion(completion: dict[str, Any]) -> dict[str, Any]:
    """Return a chat completion that was checked: itself, or mended if it does not fit the schema.

    Raises:
        InvalidReply: it cannot be mended.
    """
    return _readable(completion)[0]


def _readable(completion: dict[str, Any]) -> tuple[dict[str, Any], _Completion]:
    if not isinstance(completion, dict):
        raise InvalidReply("", f"expected a chat completion, got {type(completion).__name__}")
    try:
        given = msgspec.convert(completion, _Completion)
    except msgspec.ValidationError:
        given = None
    if given is None or any(choice.finish_reason not in _FINISH_REASONS for choice in given.choices):
        completion = mended_completion(completion)
        given = checked(completion, _Completion, InvalidReply)
    if not given.choices:
        raise InvalidReply("choices", "empty; expected one choice")
    for index, choice in enumerate(given.choices):
        if choice.finish_reason in _NO_REPLY:
            reason = f"{choice.finish_reason!r}; this is a part of a reply"
            raise InvalidReply(f"choices[{index}].finish_reason", reason)
    return completion, given


def chat_choice_to_items(choice: Mapping[str, Any], *, split_reasoning: bool, token_ids: bool = False) -> list[Item]:
    """Return the output items of one choice: reasoning, message, function calls, in this order; at least one.

    Args:
        choice: an element of `choices` of a chat completion.
        split_reasoning: take complete think blocks out of the text and make them a reasoning item.
        token_ids: put the token fields of the choice's message, if it has any, on the last item.

    Raises:
        InvalidReply: the choice does not fit the schema, or its token fields do not fit together.
    """
    given = checked(choice, _Choice, InvalidReply)
    return _items(given.message, choice["message"], split_reasoning=split_reasoning, token_ids=token_ids)


def _items(
    message: _Message, sent: Mapping[str, Any], *, split_reasoning: bool, token_ids: bool, reasoning: Any = None
) -> list[Item]:
    """Return the output items of a message, as `chat_choice_to_items`.

    Args:
        sent: the same message unchecked, for its token fields.
        reasoning: what is not in the text; other values than text are the endpoint's own, and left out.
    """
    tokens = check_tokens(sent) if token_ids else None
    text = message.content or ""
    calls = message.tool_calls or []
    items: list[Item] = []
    thoughts, text = split_think_blocks(text) if split_reasoning else ([], text)
    if reasoning and isinstance(reasoning, str):
        thoughts.insert(0, reasoning)
    if thoughts:
        items.append(reasoning_item(thoughts))
    parts: list[Item] = []
    if text or not (items or calls or message.refusal):
        parts.append({"type": "output_text", "text": text, "annotations": _citations(message.annotations)})
    if message.refusal:
        parts.append({"type": "refusal", "refusal": message.refusal})
    if parts:
        items.append(
            {"type": "message", "id": new_id("msg"), "role": "assistant", "status": "completed", "content": parts}
        )
    for call in calls:
        call_id = call.id or new_id("call")
        items.append(
            {
                "type": "function_call",
                "id": call_id,
                "call_id": call_id,
                "name": call.function.name,
                "arguments": call.function.arguments if call.function.arguments.strip() else NO_ARGUMENTS,
                "status": "completed",
            }
        )
    if tokens is not None:
        items[-1].update(tokens)
    return items


def chat_to_response(
    completion: dict[str, Any],
    params: Mapping[str, Any],
    *,
    model: str,
    split_reasoning: bool,
    token_ids: bool = False,
) -> Item:
    """Return the first choice of a chat completion as a Responses object.

    Calls of functions that stand for custom tools of `params` become calls of these.

    Args:
        completion: the provider's chat completion.
        params: the create parameters that were answered; their settings are repeated in the result.
        model: the name of the model worker.
        split_reasoning, token_ids: see `chat_choice_to_items`.

    Raises:
        InvalidReply: the completion does not fit the schema.
    """
    completion, given = _readable(completion)
    choice, sent = given.choices[0], completion["choices"][0]["message"]
    message = choice.message
    reasoning = message.reasoning_content or message.reasoning
    try:
        items = _items(message, sent, split_reasoning=split_reasoning, token_ids=token_ids, reasoning=reasoning)
    except InvalidReply as fault:
        raise fault.within("choices[0]") from None
    output = calls_of_custom_tools(items, params.get("tools") or ())

    reason = _INCOMPLETE_REASONS.get(choice.finish_reason or "")
    response: Item = {
        "id": new_id("resp"),
        "object": "response",
        "created_at": completion["created"],
        "model": model,
        "status": "incomplete" if reason else "completed",
        "incomplete_details": {"reason": reason} if reason else None,
        "output": output,
        "parallel_tool_calls": params.get("parallel_tool_calls") is not False,
        "tool_choice": params.get("tool_choice") or "auto",
        "tools": params.get("tools") or [],
        "usage": usage_from_chat(completion["usage"]) if given.usage else None,
    }
    for name in _ECHOED:
        if params.get(name) is not None:
            response[name] = params[name]
    return response


def _citations(annotations: Any) -> list[Item]:
    """Return the citations of URLs, the only annotations of chat, which nests each in an object of its own."""
    return [
        {"type": "url_citation", **cited}
        for one in (annotations if isinstance(annotations, list) else ())
        if isinstance(one, dict) and isinstance(cited := one.get("url_citation"), dict)
    ]


def check_tokens(message: Mapping[str, Any]) -> dict[str, Any] | None:
    """Check the token fields of a choice's message and return them; None if it has none.

    Raises:
        InvalidReply: they do not fit together.
    """
    try:
        tokens = token_fields(message)
    except InvalidRequest as fault:
        raise InvalidReply(f"message.{fault.path}", fault.reason) from None
    if tokens is None:
        return None
    generated, log_probs = tokens[GENERATION_FIELD], tokens[LOG_PROB_FIELD]
    if len(generated) != len(log_probs):
        reason = f"{len(log_probs)} log probs for {len(generated)} generated tokens"
        raise InvalidReply(f"message.{LOG_PROB_FIELD}", reason)
    # A NaN or an infinity makes the sum one, which is far cheaper than a check of each value.
    if not isfinite(sum(log_probs)):
        raise InvalidReply(f"message.{LOG_PROB_FIELD}", "not finite; such a sample cannot be trained on")
    return tokens


def split_think_blocks(text: str) -> tuple[list[str], str]:
    """Return the contents of all think blocks, and the text without them."""
    reasoning, rest, end = [], [], 0
    while (opening := text.find(_OPENING, end)) >= 0:
        closing = text.find(_CLOSING, opening + len(_OPENING))
        if closing < 0:
            break
        rest.append(text[end:opening])
        reasoning.append(text[opening + len(_OPENING) : closing])
        end = closing + len(_CLOSING)
    return reasoning, "".join([*rest, text[end:]])
