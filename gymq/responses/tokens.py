"""Token fields of items and messages: the engine's input, its samples, and how likely they were.

The three fields belong together. They are lists or packed arrays (`array.array`); packed ones are never unpacked.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gymq.responses.errors import InvalidRequest, checked

PROMPT_TOKEN_IDS = "prompt_token_ids"
GENERATION_TOKEN_IDS = "generation_token_ids"
GENERATION_LOG_PROBS = "generation_log_probs"
ROUTED_EXPERTS = "routed_experts"
"""Routing of a mixture-of-experts model. Optional; opaque here."""
GENERATION_POLICY_VERSIONS = "generation_policy_versions"
"""Which policy sampled the generated tokens, see `gymq.protocol.tokens.VERSIONS_FIELD`. Optional; opaque here."""
OPTIONAL_TOKEN_FIELDS = (ROUTED_EXPERTS, GENERATION_POLICY_VERSIONS)

_TYPES: dict[str, Any] = {
    PROMPT_TOKEN_IDS: list[int],
    GENERATION_TOKEN_IDS: list[int],
    GENERATION_LOG_PROBS: list[float],
}


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
            fields[name] = _packed(value, name) if _is_packed(value) else _numbers(value, expected, name)
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


def _is_packed(value: object) -> bool:
    """Return whether a value is an array, or a sequence of another kind than JSON has."""
    return isinstance(value, array) or (isinstance(value, Sequence) and not isinstance(value, str | list))


def _packed(value: Any, name: str) -> Any:
    if isinstance(value, array) and (value.typecode in "fd") != (name == GENERATION_LOG_PROBS):
        raise InvalidRequest(name, f"an array of typecode {value.typecode!r} cannot hold them")
    return value


def _numbers(value: object, expected: Any, name: str) -> object:
    try:
        msgspec.convert(value, expected)
    except msgspec.ValidationError:
        return checked(value, expected, path=name, strict=False)
    return value
