"""From a Responses object to an answer of Gemini's generateContent.

Source of the fields: https://ai.google.dev/api/generate-content#v1beta.GenerateContentResponse.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gymq.ext.conversion.arguments import arguments_object
from gymq.ext.conversion.items import reasoning_texts
from gymq.ext.gateway.output import converted_output, texts_and_refusals
from gymq.responses.errors import InvalidReply
from gymq.responses.items import Item, incomplete_reason, is_message
from gymq.responses.usage import cached_tokens, reasoning_tokens

_FINISH_REASONS = {"max_output_tokens": "MAX_TOKENS", "content_filter": "SAFETY"}


def to_gemini_answer(response: Mapping[str, Any], model: str) -> dict[str, Any]:
    """Convert a Responses object (as `validate_response` returns it) into an answer with one candidate.

    Texts of reasoning become thoughts; token fields are left out. Arguments of a call that are not a JSON object become
    text in the field `UNPARSED_ARGUMENTS`, from which `from_gemini_request` restores them.

    Args:
        model: the name that the caller knows the model by.

    Raises:
        InvalidReply: this dialect has no form for an item, such as the call of a hosted tool.
    """
    candidate = {
        "index": 0,
        "content": {"role": "model", "parts": converted_output(response, _parts)},
        "finishReason": _FINISH_REASONS.get(incomplete_reason(response) or "", "STOP"),
    }
    return {
        "candidates": [candidate],
        "usageMetadata": _usage(response.get("usage")),
        "modelVersion": model,
        "responseId": response["id"],
    }


def _parts(item: Item) -> Iterator[Item]:
    if is_message(item):
        yield from ({"text": text} for text in texts_and_refusals(item))
        return
    match item["type"]:
        case "reasoning":
            yield from _thoughts(item)
        case "function_call":
            call = {"id": item["call_id"], "name": item["name"], "args": arguments_object(item.get("arguments"))}
            yield {"functionCall": call}
        case other:
            raise InvalidReply("type", f"items of type {other} cannot be converted to a part of Gemini's")


def _thoughts(item: Item) -> Iterator[Item]:
    signature = item.get("encrypted_content")
    texts = reasoning_texts(item)
    for position, text in enumerate(texts or ([""] if signature else []), start=1):
        is_last = position >= len(texts)
        yield {"thought": True, "text": text, **({"thoughtSignature": signature} if signature and is_last else {})}


def _usage(usage: Mapping[str, Any] | None) -> dict[str, int]:
    """Return the tokens as this dialect counts them: thoughts are not part of the candidates' tokens."""
    if usage is None:
        return {"promptTokenCount": 0, "candidatesTokenCount": 0, "totalTokenCount": 0}
    thoughts = reasoning_tokens(usage)
    return {
        "promptTokenCount": usage["input_tokens"],
        "cachedContentTokenCount": cached_tokens(usage),
        "candidatesTokenCount": usage["output_tokens"] - thoughts,
        "thoughtsTokenCount": thoughts,
        "totalTokenCount": usage["input_tokens"] + usage["output_tokens"],
    }
