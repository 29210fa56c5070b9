"""Token members of items and messages: what the engine was given, what it sampled, and how likely that was.

The three members belong together. They are lists or packed arrays (`array.array`); packed ones are never unpacked.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Any

import msgspec

from gymq.responses.errors import InvalidRequest, invalid_request

PROMPT_TOKEN_IDS = "prompt_token_ids"
GENERATION_TOKEN_IDS = "generation_token_ids"
GENERATION_LOG_PROBS = "generation_log_probs"
ROUTED_EXPERTS = "routed_experts"
"""Routing of a mixture-of-experts model. Optional; opaque here."""

_TYPES: dict[str, Any] = {
    PROMPT_TOKEN_IDS: list[int],
    GENERATION_TOKEN_IDS: list[int],
    GENERATION_LOG_PROBS: list[float],
}


def token_members(holder: Mapping[str, Any]) -> dict[str, Any] | None:
    """The token members of an item or message, checked; None if it has none. A null member counts as absent.

    Numbers written as text become numbers; any other value is returned as the object it is.

    Raises:
        InvalidRequest: one of the three is missing, or is not a list or array of numbers.
    """
    members: dict[str, Any] = {}
    for name, expected in _TYPES.items():
        value = holder.get(name)
        if value is not None:
            members[name] = _packed(value, name) if isinstance(value, array) else _numbers(value, expected, name)
    if not members:
        return None
    for name in _TYPES:
        if name not in members:
            present = " and ".join(members)
            raise InvalidRequest(name, f"missing beside {present}; the three token members come together or not at all")
    if holder.get(ROUTED_EXPERTS) is not None:
        members[ROUTED_EXPERTS] = holder[ROUTED_EXPERTS]
    return members


def _packed(value: array[Any], name: str) -> array[Any]:
    if (value.typecode in "fd") != (name == GENERATION_LOG_PROBS):
        raise InvalidRequest(name, f"an array of typecode {value.typecode!r} cannot hold them")
    return value


def _numbers(value: object, expected: Any, name: str) -> object:
    try:
        msgspec.convert(value, expected)
    except msgspec.ValidationError:
        try:
            return msgspec.convert(value, expected, strict=False)
        except msgspec.ValidationError as error:
            raise invalid_request(error).within(name) from None
    return value
