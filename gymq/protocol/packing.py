"""The tokens of a model's reply: checked, packed as `gymq.protocol.tokens` describes, and labelled.

float32 is used for log probs if it represents every value exactly, as it does for values of an engine; otherwise
float64, so packing never changes a number.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gymq.protocol.tokens import (
    GENERATION_FIELD,
    ID_FIELDS,
    LOG_PROB_FIELD,
    PROMPT_FIELD,
    SAMPLING_FIELD,
    VERSIONS_FIELD,
)


def pack(response: dict[str, Any]) -> None:
    """Replace the token lists of all items of a Responses object by packed arrays, in place.

    Numbers written as text become numbers.

    Raises:
        ValueError: an id is not a 32-bit integer, a log prob is not a finite number, or the counts differ.
    """
    for position, item in enumerate(response.get("output") or ()):
        if GENERATION_FIELD in item or PROMPT_FIELD in item:
            pack_fields(item, f"output[{position}]")


def pack_fields(holder: dict[str, Any], where: str) -> None:
    """Replace the token lists of one item or message, as `pack` does.

    Args:
        where: its path, for errors.
    """
    for field in ID_FIELDS:
        if isinstance(holder.get(field), list):
            holder[field] = _pack_ids(holder[field], f"{where}.{field}")
    log_probs = holder.get(LOG_PROB_FIELD)
    if isinstance(log_probs, list):
        holder[LOG_PROB_FIELD] = _pack_log_probs(log_probs, f"{where}.{LOG_PROB_FIELD}")
    num_tokens = len(holder.get(GENERATION_FIELD) or ())
    if log_probs is not None and len(log_probs) != num_tokens:
        raise ValueError(f"{where}: {len(log_probs)} log probs for {num_tokens} generated tokens")


def label(response: dict[str, Any], versions: Sequence[str]) -> list[str]:
    """Set on each item with tokens the policy versions that sampled them; return all versions that answered.

    Args:
        versions: the versions that the worker knows: one, or those before and after an update. If the model set the
            versions itself, they are kept. Otherwise the version of all tokens of a call during which the weights
            changed is None: it is unknown which policy sampled them.

    Raises:
        ValueError: versions that the model set do not have the form of `VERSIONS_FIELD`, or do not cover the tokens.
    """
    noted: list[str] = []
    for position, item in enumerate(response.get("output") or ()):
        num_tokens = len(item.get(GENERATION_FIELD) or ())
        given = item.get(VERSIONS_FIELD)
        if given is not None:
            noted += _checked_stretches(given, num_tokens, f"output[{position}].{VERSIONS_FIELD}")
            if not any(noted):
                del item[VERSIONS_FIELD]
        elif num_tokens and any(versions):
            item[VERSIONS_FIELD] = [[versions[0] if len(versions) == 1 else None, num_tokens]]
    return list(dict.fromkeys(noted)) or list(versions)


def note_sampling(response: dict[str, Any], sampling: Mapping[str, Any]) -> None:
    """Set on each item with tokens what they were sampled with."""
    for item in response.get("output") or ():
        if sampling and item.get(GENERATION_FIELD):
            item[SAMPLING_FIELD] = dict(sampling)


def _checked_stretches(given: Any, num_tokens: int, where: str) -> list[str]:
    try:
        stretches = msgspec.convert(given, list[tuple[str, int]])
    except msgspec.ValidationError as error:
        raise ValueError(f"{where}: {error}") from None
    if any(count <= 0 for _, count in stretches) or sum(count for _, count in stretches) != num_tokens:
        raise ValueError(f"{where}: {given!r:.200} does not cover the {num_tokens} generated tokens")
    return [version for version, _ in stretches]


def count(response: dict[str, Any]) -> int:
    """Return how many tokens the items of a Responses object have, including prompts."""
    items = response.get("output") or ()
    return sum(len(item.get(field) or ()) for item in items for field in ID_FIELDS)


def _pack_ids(values: list[Any], where: str) -> array[int]:
    try:
        return array("i", values)
    except (TypeError, OverflowError):
        pass  # an id may be written as text
    try:
        return array("i", [int(value) if isinstance(value, str) else value for value in values])
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{where}: token ids must be 32-bit integers") from None


def _pack_log_probs(values: list[Any], where: str) -> array[float]:
    try:
        exact = _doubles(values)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{where}: log probs must be numbers") from None
    if not math.isfinite(sum(exact)) and not all(map(math.isfinite, exact)):
        raise ValueError(f"{where}: log probs must be finite")
    packed = array("f", exact)
    return packed if array("d", packed).tobytes() == exact.tobytes() else exact


def _doubles(values: list[Any]) -> array[float]:
    try:
        return array("d", values)
    except TypeError:
        return array("d", map(float, values))  # numbers may be written as text
