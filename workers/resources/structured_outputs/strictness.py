"""Making a schema strict: objects have all the properties that it names, and no others."""

from __future__ import annotations

from typing import Any

_SCHEMAS_BY_NAME = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_DATA = frozenset({"const", "default", "example"})  # may be objects, but are not schemas


def strict(schema: Any) -> Any:
    """A copy in which every schema with `properties` requires all of them and refuses others.

    Schemas inside lists, such as those of `anyOf`, stay as they are.
    """
    if not isinstance(schema, dict):
        return schema
    copy = {key: _strict_member(key, value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict):
        copy["required"] = list(schema["properties"])
        copy["additionalProperties"] = False
    return copy


def _strict_member(key: str, value: Any) -> Any:
    if key in _DATA:
        return value
    if key in _SCHEMAS_BY_NAME and isinstance(value, dict):
        return {name: strict(member) for name, member in value.items()}
    return strict(value)
