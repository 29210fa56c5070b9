"""Whether a reply, or a payload, fits a schema. Runs in processes that can be killed.

A pattern can need exponential time, and a YAML reply that repeats its anchors can describe more than memory holds.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from workers.resources.structured_outputs.conversion import typed_csv, typed_xml
from workers.resources.structured_outputs.formats import Format, parse
from workers.resources.structured_outputs.strictness import strict

MAX_MESSAGE_CHARACTERS = 200


class Finding(NamedTuple):
    """What is wrong; nothing if there is no type."""

    error_type: str | None = None
    error_message: str | None = None


def prepare() -> None:
    """What a process does before its first validation."""
    import openapi_schema_validator  # noqa: F401 - so that no validation pays for it


def check_reply(reply: str, schema_text: str, kind: Format, coerce_xml: bool) -> Finding:
    """Parse the reply and validate it."""
    schema = _read_schema(schema_text)
    if isinstance(schema, Finding):
        return schema
    try:
        data = parse(reply, kind)
    except Exception as error:
        return _finding("parse_error", error)
    return _validate(data, schema, kind if coerce_xml or kind != "xml" else None)


def check_arguments(arguments: str, payload_key: str | None, schema_text: str) -> Finding:
    """Validate the arguments of a tool call, or what they hold under a key."""
    try:
        payload = json.loads(arguments)
    except (ValueError, RecursionError) as error:
        return _finding("tool_arguments_parse_error", error)
    if payload_key:
        if not isinstance(payload, dict) or payload_key not in payload:
            return Finding("missing_tool_payload_key", f"the arguments have no member {payload_key}")
        payload = payload[payload_key]
    schema = _read_schema(schema_text)
    return schema if isinstance(schema, Finding) else _validate(payload, schema, None)


def _read_schema(text: str) -> Any:
    try:
        return strict(json.loads(text))
    except (ValueError, RecursionError) as error:
        return _finding("schema_error", error)


def _validate(data: Any, schema: Any, kind: Format | None) -> Finding:
    """Convert what XML and CSV wrote as text, if that is the kind, then validate."""
    from jsonschema_specifications import REGISTRY
    from openapi_schema_validator import validate

    try:
        if kind == "xml":
            data = typed_xml(data, schema)
        elif kind == "csv":
            data = typed_csv(data, schema)
        # With this registry a reference to another document is an error: the default one would fetch it.
        validate(data, schema, registry=REGISTRY)
    except Exception as error:
        return _finding("validation_error", error)
    return Finding()


def _finding(error_type: str, error: Exception) -> Finding:
    text = f"{type(error).__name__}: {getattr(error, 'message', None) or error}"[:MAX_MESSAGE_CHARACTERS]
    # A reply can hold half of a surrogate pair, which no message can carry.
    return Finding(error_type, text.encode(errors="replace").decode())
