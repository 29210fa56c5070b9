"""XML and CSV know nothing but texts. Here they become what the schema says, where they can be converted."""

from __future__ import annotations

import re
from typing import Any

_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
_NUMBER = re.compile(r"\s*[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)  # others are Python's alone


def typed_xml(data: Any, schema: Any, *, hardened: bool = True) -> Any:
    """Return the data of an XML document with the schema's types, where the schema names one.

    Args:
        hardened: whether only ASCII digits without `_` between them are a number.
    """
    if not isinstance(schema, dict):
        return data
    match schema.get("type"):
        case "object" if isinstance(data, dict):
            properties = schema.get("properties", {})
            return {name: typed_xml(value, properties.get(name), hardened=hardened) for name, value in data.items()}
        case "array":
            return [typed_xml(element, schema.get("items"), hardened=hardened) for element in _elements(data)]
        case "string" if data is None:
            return ""
        case str() as kind if isinstance(data, str):
            return _converted(data, kind, hardened)
    return data


def typed_csv(rows: list[dict[str, Any]], schema: dict[str, Any], *, hardened: bool = True) -> list[dict[str, Any]]:
    """Return the rows of a CSV file with the types of the schema's items.

    Args:
        hardened: as in `typed_xml`.
    """
    properties = schema.get("items", schema).get("properties", {})
    return [{name: _typed_cell(cell, properties.get(name), hardened) for name, cell in row.items()} for row in rows]


def _elements(data: Any) -> list[Any]:
    """Return a list as XML writes it: repeated elements, often in an element of their own.

    A single one is not a list yet.
    """
    if isinstance(data, dict) and len(data) == 1:
        (data,) = data.values()
    if isinstance(data, list):
        return data
    return [] if data is None else [data]


def _typed_cell(cell: Any, schema: Any, hardened: bool) -> Any:
    kind = schema.get("type") if isinstance(schema, dict) else None
    kinds = kind if isinstance(kind, list) else [kind]
    if not cell:
        return None if isinstance(kind, list) and "null" in kind else cell
    for one in kinds:
        value = _converted(cell, one, hardened)
        if one == "string" or not isinstance(value, str):
            return value
    return cell


def _converted(text: str, kind: Any, hardened: bool) -> Any:
    """Return the text as the type; the text itself if it cannot be converted."""
    if hardened and kind != "boolean" and not _NUMBER.fullmatch(text):
        return text
    try:
        match kind:
            case "integer":
                return int(text)
            case "number":
                return float(text)
            case "boolean":
                return _BOOLEANS.get(text.lower(), text)
    except ValueError:
        pass
    return text
