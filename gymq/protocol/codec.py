"""The codec: messages to bodies and back.

Bodies are msgpack maps; a body that starts with `{` or white space is read as JSON, so a person can publish by hand.
Binary fields (`row`) are then given as text or simply as the JSON value itself, and an unknown field is refused, which
in msgpack a later version has sent. What is stored is compressed with zstd above 64 KiB. The three encodings are
distinguished by their first byte, which no msgpack map shares with JSON or a zstd frame. Token ids and log probs are
little-endian binary, see `gymq.protocol.tokens`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import or_
from typing import Any

import msgspec
import zstandard

from gymq.errors import did_you_mean
from gymq.protocol.messages import (
    MAX_BODY_BYTES,
    BadMessage,
    Generate,
    GenerateNext,
    Message,
    Unresolved,
    VerifiedRollout,
    Verify,
)
from gymq.protocol.tokens import decode_ext, encode_ext, link, linked, to_json

COMPRESS_ABOVE_BYTES = 64 * 1024

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_JSON_STARTS = b"{ \t\r\n"
_ENCODE_ERRORS = (OverflowError, TypeError, ValueError, RecursionError, NotImplementedError)
_encoder = msgspec.msgpack.Encoder(enc_hook=encode_ext)
# Level 3 makes long rollouts a tenth smaller, and takes twice as long.
_compressor = zstandard.ZstdCompressor(level=1)
_decompressor = zstandard.ZstdDecompressor()


def encode(message: Message) -> bytes:
    """Encode a message as the body to send.

    Raises:
        BadMessage: a value has no msgpack form (an integer beyond 64 bits, half a surrogate pair, a foreign object),
            or the message is too large.
    """
    if type(message) in _ITEMS_AT:
        try:
            message = _self_contained(message)
        except ValueError as error:
            raise BadMessage(f"{type(message).__name__} cannot be encoded: {error}") from None
    try:
        body = _encoder.encode(message)
    except _ENCODE_ERRORS as error:
        where = _invalid_at(message, _encoder.encode)
        raise BadMessage(f"{type(message).__name__} cannot be encoded: {error} - at `{where}`") from None
    if len(body) > MAX_BODY_BYTES:
        raise BadMessage(f"{type(message).__name__} of {len(body)} bytes exceeds the limit of {MAX_BODY_BYTES}")
    return body


def compressed(body: bytes) -> bytes:
    """Compress a large body for storage. Calls are read once, so they are not compressed."""
    return _compressor.compress(body) if len(body) > COMPRESS_ABOVE_BYTES else body


def _self_contained(message: Message) -> Message:
    """Return a message in which each continued prompt continues one in the same message."""
    items = _items(message)
    if items is None or (kept := linked(items)) is items:
        return message
    field, key = _ITEMS_AT[type(message)]
    changed = {**getattr(message, field), key: kept} if key else kept
    return msgspec.structs.replace(message, **{field: changed})


# Of the messages that carry a conversation from its beginning: the field with its items, or with an object that has
# them, and the key there.
_ITEMS_AT: dict[type[Message], tuple[str, str]] = {
    GenerateNext: ("items", ""),
    Generate: ("params", "input"),
    VerifiedRollout: ("response", "output"),
    Unresolved: ("response", "output"),
    Verify: ("response", "output"),
}


def _items(message: Message) -> list[Any] | None:
    field, key = _ITEMS_AT[type(message)]
    items = getattr(message, field)
    if key:
        items = items.get(key)
    return items if isinstance(items, list) else None


def check_encodable(fields: dict[str, Any], path: str) -> None:
    """Check that an author's fields can be encoded in a message and in a JSON file.

    Args:
        path: of the fields, for the message.

    Raises:
        BadMessage: a value has no such form; the error names its path.
    """
    for encode_value in (_encoder.encode, to_json):
        try:
            encode_value(fields)
        except _ENCODE_ERRORS as error:
            raise BadMessage(f"{error} - at `{_invalid_at(fields, encode_value, path)}`") from None


def _invalid_at(value: Any, encode_value: Callable[[Any], bytes], path: str = "$") -> str:
    """Return the path of the first value inside `value` that cannot be encoded."""
    children: Any = ()
    if isinstance(value, msgspec.Struct):
        children = ((f".{name}", getattr(value, name)) for name in value.__struct_fields__)
    elif isinstance(value, dict):
        children = ((f".{key}" if isinstance(key, str) else f"[{key!r}]", child) for key, child in value.items())
    elif isinstance(value, list | tuple):
        children = ((f"[{position}]", child) for position, child in enumerate(value))
    for step, child in children:
        try:
            encode_value(child)
        except RecursionError:
            return f"{path}{step}"
        except _ENCODE_ERRORS:
            return _invalid_at(child, encode_value, f"{path}{step}")
    return path


class Decoder:
    """Decode bodies into one message type, or one of several, or into what several types have in common; reusable."""

    def __init__(self, *types: type[msgspec.Struct]) -> None:
        self._decode = msgspec.msgpack.Decoder(reduce(or_, types), ext_hook=decode_ext).decode
        self._fields = {
            message_type.__struct_config__.tag: {field.name: field for field in msgspec.structs.fields(message_type)}
            for message_type in types
        }

    def __call__(self, body: bytes) -> Any:
        """Decode the body of a message.

        Raises:
            BadMessage: the body is not valid; the error names the path of the wrong field.
        """
        try:
            if body[:4] == _ZSTD_MAGIC:
                body = _decompressed(body)
            if body and body[0] in _JSON_STARTS:
                body = self._from_json(body)
            message: Any = self._decode(body)
            if type(message) in _ITEMS_AT and (items := _items(message)) is not None:
                link(items)
            return message
        except BadMessage:
            raise
        except RecursionError:
            raise BadMessage("nested too deeply") from None
        except (msgspec.DecodeError, ValueError, TypeError) as error:
            raise BadMessage(str(error)) from None

    def _from_json(self, body: bytes) -> bytes:
        """Convert a JSON body to msgpack."""
        value = msgspec.json.decode(body)
        tag = value.get("type") if isinstance(value, dict) else None
        if isinstance(tag, str) and tag in self._fields:
            known = self._fields[tag]
            for name, given in value.items():
                if name != "type" and name not in known:
                    raise BadMessage(f"unknown field {name!r}{did_you_mean(name, known)}")
                if given is not None and name != "type" and known[name].type in (bytes, bytes | None):
                    value[name] = given.encode() if isinstance(given, str) else msgspec.json.encode(given)
        try:
            return _encoder.encode(value)
        except OverflowError as error:
            raise BadMessage(f"{error} - at `{_invalid_at(value, _encoder.encode)}`") from None


def _decompressed(frame: bytes) -> bytes:
    try:
        size = zstandard.frame_content_size(frame)
        if size < 0 or size > MAX_BODY_BYTES:
            raise BadMessage(f"compressed body of unknown or excessive size ({size} bytes)")
        return _decompressor.decompress(frame, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise BadMessage(f"damaged compressed body: {error}") from None
