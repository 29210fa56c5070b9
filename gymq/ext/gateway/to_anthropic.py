"""From a Responses object to a message of Anthropic's Messages API.

Source of the fields: https://docs.anthropic.com/en/api/messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gymq.ext.conversion.arguments import arguments_object
from gymq.ext.conversion.items import reasoning_texts
from gymq.ext.gateway.output import converted_output, texts_and_refusals
from gymq.responses.errors import InvalidReply
from gymq.responses.items import Item, function_calls, incomplete_reason, is_message
from gymq.responses.usage import cached_tokens

_STOP_REASONS = {"max_output_tokens": "max_tokens", "content_filter": "refusal"}


def to_anthropic_message(response: Mapping[str, Any], model: str) -> dict[str, Any]:
    """Convert a Responses object (as `validate_response` returns it) into a message.

    Texts of reasoning become thinking blocks; empty texts and token fields are left out. Arguments of a call that are
    not a JSON object become text in the field `UNPARSED_ARGUMENTS`, from which `from_anthropic_request` restores them.

    Args:
        model: the name that the caller knows the model by.

    Raises:
        InvalidReply: this dialect has no form for an item, such as the call of a hosted tool.
    """
    return {
        "id": f"msg_{response['id'].removeprefix('resp_')}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": converted_output(response, _blocks),
        "stop_reason": _stop_reason(response),
        "stop_sequence": None,
        "usage": _usage(response.get("usage")),
    }


def _blocks(item: Item) -> Iterator[Item]:
    if is_message(item):
        yield from ({"type": "text", "text": text} for text in texts_and_refusals(item))
        return
    match item["type"]:
        case "reasoning":
            yield from _thinking(item)
        case "function_call":
            yield {
                "type": "tool_use",
                "id": item["call_id"],
                "name": item["name"],
                "input": arguments_object(item.get("arguments")),
            }
        case other:
            raise InvalidReply("type", f"items of type {other} cannot be converted to an Anthropic message")


def _thinking(item: Item) -> Iterator[Item]:
    signature = item.get("encrypted_content") or ""
    texts = reasoning_texts(item)
    for position, text in enumerate(texts, start=1):
        yield {"type": "thinking", "thinking": text, "signature": signature if position == len(texts) else ""}
    if signature and not texts:
        yield {"type": "redacted_thinking", "data": signature}


def _stop_reason(response: Mapping[str, Any]) -> str:
    incomplete = incomplete_reason(response)
    if incomplete in _STOP_REASONS:
        return _STOP_REASONS[incomplete]
    if function_calls(response):
        return "tool_use"
    parts = [part for item in response["output"] if is_message(item) for part in item["content"]]
    if any(isinstance(part, dict) and part.get("type") == "refusal" for part in parts):
        return "refusal"
    return "end_turn"


def _usage(usage: Mapping[str, Any] | None) -> dict[str, int]:
    """Return the tokens as this dialect counts them: cached ones are not input, and unknown counts are 0."""
    if usage is None:
        return {"input_tokens": 0, "output_tokens": 0}
    cached = cached_tokens(usage)
    return {
        "input_tokens": usage["input_tokens"] - cached,
        "cache_read_input_tokens": cached,
        "cache_creation_input_tokens": 0,
        "output_tokens": usage["output_tokens"],
    }
