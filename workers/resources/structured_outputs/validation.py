"""Whether a reply, or a payload, fits a schema. Runs in processes that can be killed.

A pattern can need exponential time, and a YAML reply that repeats its anchors can describe more than memory holds.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable
from typing import Any, NamedTuple

from gymq.workers.resources.structured_outputs import patterns
from gymq.workers.resources.structured_outputs.conversion import typed_csv, typed_xml
from gymq.workers.resources.structured_outputs.formats import Format, header_of_csv, parse

_SCHEMAS_BY_NAME = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_DATA = frozenset({"const", "default", "example"})  # may be objects, but are not schemas

MAX_MESSAGE_CHARACTERS = 200


class Finding(NamedTuple):
    """Return the error; nothing if there is no type."""

    error_type: str | None = None
    error_message: str | None = None


def prepare() -> None:
    """What a process does before its first validation."""
    _validator()


def check_reply(reply: str, schema_text: str, kind: Format, coerce_xml: bool, *, hardened: bool = True) -> Finding:
    """Parse the reply and validate it.

    Args:
        coerce_xml: whether texts of XML are converted.
        hardened: whether numbers have to be finite and written as in other languages, quoted cells of CSV have to end,
            and a CSV without rows has to name the schema's columns.
    """
    schema = _read_schema(schema_text)
    if isinstance(schema, Finding):
        return schema
    try:
        data = parse(reply, kind, strict_csv=hardened)
        if hardened:
            _check_finite(data)
            _check_columns(data, reply, schema, kind)
    except Exception as error:
        return _finding("parse_error", error)
    return _validate(data, schema, kind if coerce_xml or kind != "xml" else None, hardened=hardened)


def check_arguments(arguments: str, payload_key: str | None, schema_text: str, *, hardened: bool = True) -> Finding:
    """Validate the arguments of a tool call, or what they hold under a key.

    Args:
        hardened: whether numbers have to be finite.
    """
    try:
        payload = json.loads(arguments)
        if hardened:
            _check_finite(payload)
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


def _validate(data: Any, schema: Any, kind: Format | None, *, hardened: bool = False) -> Finding:
    """Convert what XML and CSV wrote as text, if that is the kind, then validate.

    Args:
        hardened: whether the numbers that texts become have to be finite, and written as in other languages.
    """
    from jsonschema_specifications import REGISTRY

    try:
        if kind == "xml":
            data = typed_xml(data, schema, hardened=hardened)
        elif kind == "csv":
            data = typed_csv(data, schema, hardened=hardened)
        if hardened:
            _check_finite(data)
        # With this registry a reference to another document is an error: the default one would fetch it.
        _validator()(data, schema, registry=REGISTRY)
    except Exception as error:
        return _finding("validation_error", error)
    return Finding()


def _check_finite(data: Any) -> None:
    """Raise ValueError if a number is NaN or infinite. Such a number passes any bounds, and JSON cannot write it."""
    seen, pending = set[int](), [data]
    while pending:
        one = pending.pop()
        if isinstance(one, float) and not math.isfinite(one):
            raise ValueError(f"{one} is not a number of JSON")
        if isinstance(one, dict | list) and id(one) not in seen:
            seen.add(id(one))  # YAML may repeat named values
            pending += one.values() if isinstance(one, dict) else one


def _check_columns(data: Any, reply: str, schema: Any, kind: Format) -> None:
    """Raise ValueError if a CSV has no rows and its first line does not name the columns: any line of prose is one."""
    if kind != "csv" or data:
        return
    columns = schema.get("items", schema).get("properties", {}) if isinstance(schema, dict) else {}
    if not columns or sorted(header_of_csv(reply)) != sorted(columns):
        raise ValueError("there are no rows, and the first line does not name the columns of the schema")


@functools.cache
def _validator() -> Callable[..., None]:
    """Return the validator, which is a heavy import, with patterns of ECMAScript."""
    from jsonschema import _format, _keywords, _utils
    from openapi_schema_validator import validate

    for module in (_format, _keywords, _utils):
        module.re = patterns
    return validate


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
