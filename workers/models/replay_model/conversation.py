"""Recognising conversations: when two items are the same, and where one model call ends and the next begins."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

from gymq.protocol.tokens import TOKEN_FIELDS
from gymq.responses import is_generated, is_message
from gymq.responses.tokens import OPTIONAL_TOKEN_FIELDS

Item = dict[str, Any]

# Fields that an engine, a store or a converter may add, drop or renew without changing the conversation.
_NOT_SAID = frozenset(
    {
        "id",
        "status",
        "type",
        *TOKEN_FIELDS,
        *OPTIONAL_TOKEN_FIELDS,
    }
)
_NOT_SAID_IN_PARTS = frozenset({"annotations", "logprobs"})
_DIGEST_BYTES = 16


def text_of(item: Item) -> str:
    """Return an item as JSON text, the same for all ways to write the item."""
    said = {name: value for name, value in item.items() if name not in _NOT_SAID and value is not None}
    if is_message(item):
        said["content"] = _content(item.get("content"))
    else:
        said["type"] = item["type"]
    return msgspec.json.encode(said, order="sorted").decode()


def _content(content: Any) -> Any:
    """Return a message's text as one string; parts that are not text stay parts."""
    if not isinstance(content, list):
        return content
    if all(isinstance(part.get("text"), str) for part in content):
        return "".join(part["text"] for part in content)
    return [{name: value for name, value in part.items() if name not in _NOT_SAID_IN_PARTS} for part in content]


def beginning(instructions: str | None) -> bytes:
    """Fingerprint of a conversation in which nothing was said yet."""
    return hashlib.blake2b((instructions or "").encode(), digest_size=_DIGEST_BYTES).digest()


def continued(fingerprint: bytes, item: Item) -> bytes:
    """Fingerprint of a conversation with one more item."""
    return hashlib.blake2b(fingerprint + text_of(item).encode(), digest_size=_DIGEST_BYTES).digest()


def model_turns(output: Sequence[Item]) -> list[tuple[int, int]]:
    """Return the model calls in the output of a rollout, as pairs of start and stop.

    A call ends where an item follows that no model made, and after the item with token ids: an engine puts them on the
    last item of its reply.
    """
    turns: list[tuple[int, int]] = []
    start: int | None = None
    for position, item in enumerate(output):
        if is_generated(item):
            start = position if start is None else start
            if item.get("generation_token_ids") is not None:
                turns.append((start, position + 1))
                start = None
        elif start is not None:
            turns.append((start, position))
            start = None
    if start is not None:
        turns.append((start, len(output)))
    return turns
