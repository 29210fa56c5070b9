"""The rules of OpenAI for `strict: true`, which refuses a whole request for one schema that breaks them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_KEYWORDS = frozenset(
    (
        *("$defs", "$ref", "additionalProperties", "anyOf", "const", "description", "enum", "exclusiveMaximum"),
        *("exclusiveMinimum", "items", "maxItems", "maximum", "minItems", "minimum", "multipleOf", "pattern"),
        *("properties", "required", "title", "type"),
    )
)
_KINDS = frozenset({"$ref", "anyOf", "const", "enum", "type"})


def keeps_strict_rules(schema: Mapping[str, Any]) -> bool:
    """Return whether a JSON schema may be offered with `strict: true`.

    All properties of all objects are required and no others allowed, each value has a type, and a reference stands
    alone.
    """
    if not schema.keys() <= _KEYWORDS or schema.keys().isdisjoint(_KINDS):
        return False
    if "$ref" in schema and len(schema) > 1:
        return False
    properties = schema.get("properties", {})
    if schema.get("type") == "object" and (
        schema.get("additionalProperties") is not False or set(schema.get("required", ())) != set(properties)
    ):
        return False
    if schema.get("type") == "array" and "items" not in schema:
        return False
    parts = [*properties.values(), *schema.get("$defs", {}).values(), *schema.get("anyOf", ())]
    return all(map(keeps_strict_rules, [*parts, *([schema["items"]] if "items" in schema else [])]))
