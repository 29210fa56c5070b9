"""Whether a reply, or a payload, fits a schema. Runs in processes that can be killed.

A pattern can need exponential time, and a YAML reply that repeats its anchors can describe more than memory holds.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from gymq.workers.resources.structured_outputs.formats import Format, parse
from gymq.workers.resources.structured_outputs.rules import AsMeant, SchemaRule

_SCHEMAS_BY_NAME = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_DATA = frozenset({"const", "default", "example"})  # may be objects, but are not schemas

MAX_MESSAGE_CHARACTERS = 200


class Finding(NamedTuple):
    """Return the error; nothing if there is no type."""

    error_type: str | None = None
    error_message: str | None = None


def prepare() -> None:
    """What a process does before its first validation."""
    AsMeant().validator()


def check_reply(rule: SchemaRule, reply: str, schema_text: str, kind: Format, coerce_xml: bool) -> Finding:
    """Parse the reply and validate it.

    Args:
        coerce_xml: whether texts of XML are converted.
    """
    schema = _read_schema(schema_text)
    if isinstance(schema, Finding):
        return schema
    try:
        data = parse(reply, kind, strict_csv=rule.strict_csv)
        rule.check(data)
        rule.check_columns(data, reply, schema, kind)
    except Exception as error:
        return _finding("parse_error", error)
    return _validate(rule, data, schema, kind if coerce_xml or kind != "xml" else None)


def check_arguments(rule: SchemaRule, arguments: str, payload_key: str | None, schema_text: str) -> Finding:
    """Validate the arguments of a tool call, or what they hold under a key."""
    try:
        payload = json.loads(arguments)
        rule.check(payload)
    except (ValueError, RecursionError) as error:
        return _finding("tool_arguments_parse_error", error)
    if payload_key:
        if not isinstance(payload, dict) or payload_key not in payload:
            return Finding("missing_tool_payload_key", f"the arguments have no member {payload_key}")
        payload = payload[payload_key]
    schema = _read_schema(schema_text)
    return schema if isinstance(schema, Finding) else _validate(rule, payload, schema, None)


def _read_schema(text: str) -> Any:
    try:
        return strict(json.loads(text))
    except (ValueError, RecursionError) as error:
        return _finding("schema_error", error)


def _validate(rule: SchemaRule, data: Any, schema: Any, kind: Format | None) -> Finding:
    """Convert what XML and CSV wrote as text, if that is the kind, then validate."""
    from jsonschema_specifications import REGISTRY
    from openapi_schema_validator import validate

    try:
        if kind == "xml" or kind == "csv":
            data = rule.typed(data, schema, kind)
        rule.check(data)
        # With this registry a reference to another document is an error: the default one would fetch it.
        validate(data, schema, cls=rule.validator(), registry=REGISTRY)
    except Exception as error:
        return _finding("validation_error", error)
    return Finding()


def _finding(error_type: str, error: Exception) -> Finding:
    text = f"{type(error).__name__}: {getattr(error, 'message', None) or error}"[:MAX_MESSAGE_CHARACTERS]
    # A reply can hold half of a surrogate pair, which no message can carry.
    return Finding(error_type, text.encode(errors="replace").decode())


def strict(schema: Any) -> Any:
    """Return a copy in which every schema with `properties` requires all of them and refuses others.

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
