"""Token fields of items and messages: prompt, sampled tokens, and their log probs.

The three fields belong together. They are lists or packed arrays (`array.array`); packed ones are never unpacked.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Any

import msgspec

from gymq.protocol.tokens import (
    GENERATION_FIELD,
    LOG_PROB_FIELD,
    PROMPT_FIELD,
    SAMPLING_FIELD,
    VERSIONS_FIELD,
    ContinuedPrompt,
)
from gymq.responses.errors import InvalidRequest, checked

ROUTED_EXPERTS = "routed_experts"
"""Routing of a mixture-of-experts model. Optional; opaque here."""
OPTIONAL_TOKEN_FIELDS = (ROUTED_EXPERTS, VERSIONS_FIELD, SAMPLING_FIELD)

_TYPES: dict[str, Any] = {PROMPT_FIELD: list[int], GENERATION_FIELD: list[int], LOG_PROB_FIELD: list[float]}


def token_fields(holder: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the token fields of an item or message, checked; None if it has none. A null field counts as absent.

    Numbers written as text become numbers; any other value is returned unchanged.

    Raises:
        InvalidRequest: one of the three is missing, or is not a list or array of numbers.
    """
    fields: dict[str, Any] = {}
    for name, expected in _TYPES.items():
        value = holder.get(name)
        if value is not None:
            is_packed = isinstance(value, array | ContinuedPrompt)
            fields[name] = _packed(value, name) if is_packed else _numbers(value, expected, name)
    if not fields:
        return None
    for name in _TYPES:
        if name not in fields:
            present = " and ".join(fields)
            raise InvalidRequest(name, f"missing beside {present}; give all three token fields or none")
    for name in OPTIONAL_TOKEN_FIELDS:
        if holder.get(name) is not None:
            fields[name] = holder[name]
    return fields


def _packed(value: Any, name: str) -> Any:
    if isinstance(value, array) and (value.typecode in "fd") != (name == LOG_PROB_FIELD):
        raise InvalidRequest(name, f"an array of typecode {value.typecode!r} cannot hold them")
    return value


def _numbers(value: object, expected: Any, name: str) -> object:
    try:
        msgspec.convert(value, expected)
    except msgspec.ValidationError:
        return checked(value, expected, path=name, strict=False)
    return value
