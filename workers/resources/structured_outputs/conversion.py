"""XML and CSV know nothing but texts. Here they become what the schema says, where they can be converted."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal

BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
_NUMBER = re.compile(r"\s*[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)  # others are Python's alone
_BRANCHES = ("anyOf", "oneOf", "allOf")
_MOST_BRANCHES = 100

Schema = dict[str, Any]


class Conversion:
    """Gives the texts of a document the types of a schema, also below references, branches and lists of types."""

    def __init__(self, root: Any, kind: Literal["xml", "csv"]) -> None:
        """
        Args:
            root: the schema of the whole document, which references are resolved in.
            kind: an element of XML without a content is an empty text; a cell of CSV that is not there is none.
        """
        self._root = root
        self._none_is_empty = kind == "xml"

    def document(self, data: Any) -> Any:
        """Return the data of a document with the schema's types, where the schema names one."""
        return self._typed(data, [self._root])

    def _typed(self, data: Any, schemas: Sequence[Any]) -> Any:
        branches = self._branches(schemas)
        kinds = list(dict.fromkeys(kind for branch in branches for kind in _kinds(branch)))
        if isinstance(data, dict) and ("object" in kinds or "array" not in kinds):
            return {name: self._typed(value, list(_members(branches, name))) for name, value in data.items()}
        if "array" in kinds and not isinstance(data, str):
            items = [branch["items"] for branch in branches if "items" in branch]
            return [self._typed(element, items) for element in elements(data)]
        if isinstance(data, list):
            return [self._typed(element, [branch.get("items") for branch in branches]) for element in data]
        if data == "" or (data is None and self._none_is_empty):
            return None if "null" in kinds else "" if "string" in kinds else data
        if not isinstance(data, str):
            return data
        if "array" in kinds and "string" not in kinds:
            return [self._typed(data, [branch["items"] for branch in branches if "items" in branch])]
        return _converted(data, kinds, [value for branch in branches for value in _values(branch)])

    def _branches(self, schemas: Sequence[Any]) -> list[Schema]:
        """Return the schemas and those that they refer to or are made of, up to a number that no honest schema has."""
        found: list[Schema] = []
        pending = [schema for schema in schemas if isinstance(schema, dict)]
        while pending and len(found) < _MOST_BRANCHES:
            schema = pending.pop(0)
            found.append(schema)
            others = [*(one for key in _BRANCHES for one in schema.get(key) or ()), self._resolved(schema.get("$ref"))]
            pending += [one for one in others if isinstance(one, dict) and one not in found]
        return found

    def _resolved(self, reference: Any) -> Any:
        if not isinstance(reference, str) or not reference.startswith("#"):
            return None
        place = self._root
        for name in reference.removeprefix("#").split("/")[1:]:
            place = place.get(name.replace("~1", "/").replace("~0", "~")) if isinstance(place, dict) else None
        return place


def elements(data: Any) -> list[Any]:
    """Return a list as XML writes it: repeated elements, often in an element of their own.

    A single one is not a list yet.
    """
    if isinstance(data, dict) and len(data) == 1:
        (data,) = data.values()
    if isinstance(data, list):
        return data
    return [] if data is None else [data]


def _kinds(schema: Schema) -> list[Any]:
    kind = schema.get("type")
    return kind if isinstance(kind, list) else [] if kind is None else [kind]


def _members(branches: Iterable[Schema], name: str) -> Iterable[Any]:
    for branch in branches:
        properties = branch.get("properties")
        if isinstance(properties, dict) and name in properties:
            yield properties[name]
        else:
            yield branch.get("additionalProperties")


def _values(schema: Schema) -> list[Any]:
    """Return the values that a schema names."""
    return [*(schema.get("enum") or ()), *([schema["const"]] if "const" in schema else ())]


def _converted(text: str, kinds: Sequence[Any], values: Sequence[Any]) -> Any:
    """Return the text as the first type that it fits, or as a value that the schema names; otherwise the text."""
    if not kinds and text not in values:
        for value in values:
            if value == _as(text, "boolean" if isinstance(value, bool) else "number"):
                return value
    for kind in kinds:
        value = _as(text, kind)
        if kind == "string" or not isinstance(value, str):
            return value
    return text


def _as(text: str, kind: Any) -> Any:
    if kind == "boolean":
        return BOOLEANS.get(text.strip().lower(), text)
    if kind not in ("integer", "number") or not _NUMBER.fullmatch(text):
        return text
    try:
        return int(text)
    except ValueError:
        number = float(text)
        return text if kind == "integer" and not number.is_integer() else number
