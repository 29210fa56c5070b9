"""Token ids and log probs as packed arrays.

In memory they are `array.array`: 'i' for ids (int32), 'f' or 'd' for log probs. float32 is used where it holds every
value exactly, which is so for what an engine samples; anything else keeps float64, so packing never changes a number.
"""

from __future__ import annotations

import math
import sys
from array import array
from typing import Any

import msgspec

ID_FIELDS = ("prompt_token_ids", "generation_token_ids")
LOG_PROB_FIELD = "generation_log_probs"
TOKEN_FIELDS = (*ID_FIELDS, LOG_PROB_FIELD)

_EXT_OF_TYPECODE = {"i": 1, "f": 2, "d": 3}
_TYPECODE_OF_EXT = {code: typecode for typecode, code in _EXT_OF_TYPECODE.items()}


def pack(response: dict[str, Any]) -> None:
    """Replace the token lists of all items of a Responses object by packed arrays, in place.

    Numbers written as text become numbers.

    Raises:
        ValueError: an id is not a 32-bit integer, a log prob is not a finite number, or the counts differ.
    """
    for position, item in enumerate(response.get("output") or ()):
        if "generation_token_ids" not in item and "prompt_token_ids" not in item:
            continue
        where = f"output[{position}]"
        for field in ID_FIELDS:
            if isinstance(item.get(field), list):
                item[field] = _pack_ids(item[field], f"{where}.{field}")
        log_probs = item.get(LOG_PROB_FIELD)
        if isinstance(log_probs, list):
            item[LOG_PROB_FIELD] = _pack_log_probs(log_probs, f"{where}.{LOG_PROB_FIELD}")
        num_tokens = len(item.get("generation_token_ids") or ())
        if log_probs is not None and len(log_probs) != num_tokens:
            raise ValueError(f"{where}: {len(log_probs)} log probs for {num_tokens} generated tokens")


def count(response: dict[str, Any]) -> int:
    """Return how many tokens the items of a Responses object carry, those of prompts included."""
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
    if not all(map(math.isfinite, exact)):
        raise ValueError(f"{where}: log probs must be finite")
    packed = array("f", exact)
    return packed if packed.tolist() == exact.tolist() else exact


def _doubles(values: list[Any]) -> array[float]:
    try:
        return array("d", values)
    except TypeError:
        return array("d", map(float, values))  # numbers may be written as text


def encode_ext(value: Any) -> Any:
    """Turn packed arrays into extension values; msgspec's `enc_hook` for msgpack."""
    if isinstance(value, array) and value.typecode in _EXT_OF_TYPECODE:
        if sys.byteorder == "big":
            value = value[:]
            value.byteswap()
        return msgspec.msgpack.Ext(_EXT_OF_TYPECODE[value.typecode], value.tobytes())
    raise TypeError(f"{type(value).__name__} has no wire form")


def decode_ext(code: int, data: memoryview) -> array[Any]:
    """Turn an extension value back into a packed array; msgspec's `ext_hook`, the reverse of `encode_ext`."""
    typecode = _TYPECODE_OF_EXT.get(code)
    if typecode is None:
        raise ValueError(f"unknown extension type {code}")
    values: array[Any] = array(typecode)
    values.frombytes(data)
    if sys.byteorder == "big":
        values.byteswap()
    return values


def encode_json(value: Any) -> Any:
    """Turn packed arrays into lists of numbers; msgspec's `enc_hook` for JSON."""
    if isinstance(value, array):
        return value.tolist()
    raise NotImplementedError(f"{type(value).__name__} has no JSON form")
