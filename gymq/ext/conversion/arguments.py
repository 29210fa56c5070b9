"""Arguments of calls: objects in some dialects, in Responses the text that the model wrote."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from gymq.protocol.decoding import UNDECODABLE

UNPARSED_ARGUMENTS = "__unparsed_arguments__"
"""Key of an object that holds arguments which are not a JSON object, as the model wrote them."""

_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


def arguments_text(arguments: Mapping[str, Any]) -> str:
    """Return the arguments of a call as text."""
    unparsed = arguments.get(UNPARSED_ARGUMENTS)
    return unparsed if isinstance(unparsed, str) else json.dumps(arguments, ensure_ascii=False)


def arguments_object(text: str | None) -> dict[str, Any]:
    """Return the arguments of a call as an object, from which `arguments_text` restores the text.

    No text means no arguments: some engines give that for functions that take none.
    """
    if text is None or not text.strip():
        return {}
    try:
        parsed = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        parsed = None
    return parsed if isinstance(parsed, dict) else {UNPARSED_ARGUMENTS: text}


def sent_arguments(text: str | None) -> str:
    """Return the arguments of a call in the history as every engine takes them: the text of an object.

    Engines refuse a history with other text, as a model may have written it; that becomes the value of
    `UNPARSED_ARGUMENTS`.
    """
    try:
        _decode_object(text or "")
    except UNDECODABLE:
        return json.dumps(arguments_object(text))
    assert text is not None
    return text


def with_sent_arguments(item: dict[str, Any]) -> dict[str, Any]:
    """Return an item of the history, a function call with its arguments as `sent_arguments` gives them."""
    if item.get("type") != "function_call":
        return item
    return {**item, "arguments": sent_arguments(item.get("arguments"))}


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
