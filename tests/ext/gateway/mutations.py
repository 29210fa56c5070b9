"""Changes of JSON as engines and the gateways in front of them make them, and worse ones."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

VALUES: list[Any] = [
    None,
    "",
    "text",
    "\ud83d",
    "\x00",
    0,
    -1,
    2.5,
    True,
    [],
    [None],
    {},
    {"type": "text"},
    [{"type": "text", "text": "a"}],
    10**30,
    "x" * 10_000,
]
NAMES = ["error", "function_call", "content", "reasoning", "type", "id", "usage", "detail"]


def _retyped(value: Any) -> Any:
    """Return what says the same as a value, in another type."""
    match value:
        case bool() | None:
            return str(value)
        case int() | float():
            return str(value) if value % 2 else float(value)
        case str():
            try:
                return json.loads(value)
            except ValueError:
                return [{"type": "text", "text": value}]
        case list():
            return value[0] if len(value) == 1 else {str(index): one for index, one in enumerate(value)}
        case _:
            return [value]


def _replaced(dice: random.Random, holder: Any, key: Any) -> None:
    holder[key] = json.loads(json.dumps(dice.choice(VALUES)))


def _dropped(_dice: random.Random, holder: Any, key: Any) -> None:
    del holder[key]


def _as_other_type(_dice: random.Random, holder: Any, key: Any) -> None:
    holder[key] = _retyped(holder[key])


def _in_other_case(_dice: random.Random, holder: Any, key: Any) -> None:
    if isinstance(holder[key], str):
        holder[key] = holder[key].upper()


def _twice(dice: random.Random, holder: Any, key: Any) -> None:
    if isinstance(holder, list):
        holder.insert(key, json.loads(json.dumps(holder[key])))
    else:
        holder[dice.choice(NAMES)] = json.loads(json.dumps(holder[key]))


def _cut(dice: random.Random, holder: Any, key: Any) -> None:
    if isinstance(holder[key], str):
        holder[key] = holder[key][: dice.randint(0, len(holder[key]))] + dice.choice(
            ["", "\ud83d", "\n", "</tool_call>"]
        )


_CHANGES: list[Callable[[random.Random, Any, Any], None]] = [
    _replaced,
    _replaced,
    _dropped,
    _as_other_type,
    _in_other_case,
    _twice,
    _cut,
]


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield all containers in a value with their keys."""
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from places(value[key])


def changed(whole: Any, dice: random.Random) -> Any:
    """Return a copy of JSON with one to three changes."""
    copy = json.loads(json.dumps(whole))
    for _ in range(dice.randint(1, 3)):
        found = list(places(copy))
        if not found:
            break
        dice.choice(_CHANGES)(dice, *dice.choice(found))
    return copy


def changed_bytes(whole: Any, dice: random.Random) -> bytes:
    """Return JSON as bytes that are often not quite JSON."""
    body = json.dumps(whole).encode()
    place = dice.randrange(len(body) + 1)
    match dice.randrange(6):
        case 0:
            return b"\xef\xbb\xbf" + body
        case 1:
            return body[:place] + bytes([dice.randrange(256)]) + body[place:]
        case 2:
            return body[:place]
        case 3:
            return body + dice.choice([b"\n\n", b"\x00", b"]", body])
        case 4:
            return body.replace(b"null", b"NaN").replace(b"2", b"Infinity", 1)
        case _:
            return b" " * 1000 + body.replace(b", ", b",\r\n")
