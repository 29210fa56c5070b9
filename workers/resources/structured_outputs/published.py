"""How NeMo Gym gives the texts of XML and CSV the types of the schema: by the type that stands where the text does."""

from __future__ import annotations

from typing import Any

from gymq.workers.resources.structured_outputs.conversion import BOOLEANS, elements


def typed_xml(data: Any, schema: Any) -> Any:
    """Return the data of an XML document with the schema's types, where the schema names one."""
    if not isinstance(schema, dict):
        return data
    match schema.get("type"):
        case "object" if isinstance(data, dict):
            properties = schema.get("properties", {})
            return {name: typed_xml(value, properties.get(name)) for name, value in data.items()}
        case "array":
            return [typed_xml(element, schema.get("items")) for element in elements(data)]
        case "string" if data is None:
            return ""
        case str() as kind if isinstance(data, str):
            return _converted(data, kind)
    return data


def typed_csv(rows: list[dict[str, Any]], schema: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of a CSV file with the types of the schema's items."""
    properties = schema.get("items", schema).get("properties", {})
    return [{name: _typed_cell(cell, properties.get(name)) for name, cell in row.items()} for row in rows]


def _typed_cell(cell: Any, schema: Any) -> Any:
    kind = schema.get("type") if isinstance(schema, dict) else None
    kinds = kind if isinstance(kind, list) else [kind]
    if not cell:
        return None if isinstance(kind, list) and "null" in kind else cell
    for one in kinds:
        value = _converted(cell, one)
        if one == "string" or not isinstance(value, str):
            return value
    return cell


def _converted(text: str, kind: Any) -> Any:
    """Return the text as the type; the text itself if it cannot be converted."""
    try:
        match kind:
            case "integer":
                return int(text)
            case "number":
                return float(text)
            case "boolean":
                return BOOLEANS.get(text.lower(), text)
    except ValueError:
        pass
    return text
