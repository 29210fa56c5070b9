"""Values invented to fit a JSON schema.

Understood: type, enum, const, properties, required, items, anyOf, oneOf, `$ref` within the document, bounds of numbers,
lengths and item counts, common formats. Everything else (pattern, allOf, not, uniqueItems, ...) is not looked at.
"""

from __future__ import annotations

import math
import random
from typing import Any

from gymq.errors import GymqError

_DEEP = 3  # from here on what may be null or empty is
_TOO_DEEP = 12
_SPAN = 100  # width of a range with an open end
_WORDS = ("alpha", "bravo", "delta", "echo", "golf", "kilo", "lima", "oscar", "sierra", "tango")
_FORMATS = {
    "date": "2025-06-15",
    "date-time": "2025-06-15T12:00:00Z",
    "time": "12:00:00Z",
    "email": "someone@example.com",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}


class BadSchema(GymqError, ValueError):
    """Not a JSON schema."""


def invent(schema: Any, rng: random.Random) -> Any:
    """Return a value that fits the schema; null where a schema that contains itself would never end.

    Raises:
        BadSchema: a keyword has a value of the wrong type.
    """
    try:
        return _Inventor(schema, rng).value(schema, 0)
    except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError) as error:
        raise BadSchema(f"not a JSON schema: {error}") from None


class _Inventor:
    def __init__(self, root: Any, rng: random.Random) -> None:
        self._root = root
        self._rng = rng

    def value(self, schema: Any, depth: int) -> Any:
        schema = self._followed(schema)
        if not isinstance(schema, dict) or depth > _TOO_DEEP:
            return None
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return self._rng.choice(schema["enum"])
        choices = schema.get("anyOf") or schema.get("oneOf")
        if choices:
            return self.value(sorted(choices, key=_is_null, reverse=depth >= _DEEP)[0], depth + 1)
        match _type(schema):
            case "object":
                properties = schema.get("properties") or {}
                return {name: self.value(properties.get(name), depth + 1) for name in schema.get("required") or ()}
            case "array":
                wanted = 0 if depth >= _DEEP else min(1, schema.get("maxItems", 1))
                count = max(wanted, schema.get("minItems", 0))
                return [self.value(schema.get("items"), depth + 1) for _ in range(count)]
            case "integer":
                return int(self._number(schema, step=schema.get("multipleOf", 1)))
            case "number":
                return self._number(schema, step=schema.get("multipleOf"))
            case "boolean":
                return self._rng.random() < 0.5
            case "null":
                return None
            case _:
                return self._text(schema)

    def _followed(self, schema: Any) -> Any:
        for _ in range(_TOO_DEEP):
            if not isinstance(schema, dict) or "$ref" not in schema:
                break
            target = self._root
            for step in schema["$ref"].removeprefix("#/").split("/"):
                target = target[step]
            schema = target
        return schema

    def _number(self, schema: dict[str, Any], *, step: float | None) -> float:
        low, high = schema.get("minimum"), schema.get("maximum")
        margin = step or 1e-6
        if "exclusiveMinimum" in schema:
            low = schema["exclusiveMinimum"] + margin
        if "exclusiveMaximum" in schema:
            high = schema["exclusiveMaximum"] - margin
        if low is None:
            low = 0 if high is None else min(0, high - _SPAN)
        if high is None:
            high = low + _SPAN * (step or 1)
        if not step:
            return low + (high - low) * self._rng.random()
        first = math.ceil(low / step)
        return self._rng.randint(first, max(first, math.floor(high / step))) * step

    def _text(self, schema: dict[str, Any]) -> str:
        text = _FORMATS.get(schema.get("format", "")) or self._rng.choice(_WORDS)
        text = text.ljust(schema.get("minLength", 0), "x")
        return text[: schema.get("maxLength", len(text))]


def _type(schema: dict[str, Any]) -> str:
    named = schema.get("type")
    if isinstance(named, list):
        named = sorted(named, key="null".__eq__)[0]
    if named is None:
        return "object" if "properties" in schema else "string"
    return str(named)


def _is_null(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.get("type") == "null"
