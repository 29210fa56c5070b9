"""The two ways to check a reply: by what JSON and its schemas say, and as NeMo Gym does."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any, Literal

from gymq.workers.resources.structured_outputs import patterns
from gymq.workers.resources.structured_outputs.conversion import Conversion
from gymq.workers.resources.structured_outputs.formats import Format, header_of_csv
from gymq.workers.resources.structured_outputs.published import typed_csv, typed_xml


class AsMeant:
    """Numbers are finite and written as in other languages, multiples exact, and types found wherever they are."""

    strict_csv = True  # a quoted cell of CSV has to end with its quote

    def check(self, data: Any) -> None:
        seen, pending = set[int](), [data]
        while pending:
            one = pending.pop()
            if isinstance(one, float) and not math.isfinite(one):
                raise ValueError(f"{one} is not a number of JSON")
            if isinstance(one, dict | list) and id(one) not in seen:
                seen.add(id(one))  # YAML may repeat named values
                pending += one.values() if isinstance(one, dict) else one

    def check_columns(self, data: Any, reply: str, schema: Any, kind: Format) -> None:
        if kind != "csv" or data:
            return
        columns = schema.get("items", schema).get("properties", {}) if isinstance(schema, dict) else {}
        if not columns or sorted(header_of_csv(reply)) != sorted(columns):
            raise ValueError("there are no rows, and the first line does not name the columns of the schema")

    def typed(self, data: Any, schema: Any, kind: Literal["xml", "csv"]) -> Any:
        return Conversion(schema, kind).document(data)

    def validator(self) -> type[Any]:
        return _exact_validator()


class Published:
    """NaN and `1_000` are numbers, multiples are calculated with floats, and a line of prose is a CSV."""

    strict_csv = False

    def check(self, data: Any) -> None:
        pass

    def check_columns(self, data: Any, reply: str, schema: Any, kind: Format) -> None:
        pass

    def typed(self, data: Any, schema: Any, kind: Literal["xml", "csv"]) -> Any:
        return typed_xml(data, schema) if kind == "xml" else typed_csv(data, schema)

    def validator(self) -> type[Any]:
        return _validator()


SchemaRule = AsMeant | Published


@functools.cache
def _validator() -> type[Any]:
    """Return the validator, which is a heavy import, with patterns of ECMAScript."""
    from jsonschema import _format, _keywords, _utils
    from openapi_schema_validator import OAS31Validator

    for module in (_format, _keywords, _utils):
        module.re = patterns
    kind: type[Any] = OAS31Validator
    return kind


@functools.cache
def _exact_validator() -> type[Any]:
    from jsonschema.validators import extend

    kind: type[Any] = extend(_validator(), {"multipleOf": _multiple_of})
    return kind


def _multiple_of(validator: Any, step: Any, instance: Any, _schema: Any) -> Iterator[Exception]:
    """Yield an error if a number is no multiple, calculated with the digits that are written."""
    from jsonschema.exceptions import ValidationError

    if validator.is_type(instance, "number") and (_exact(instance) / _exact(step)).denominator != 1:
        yield ValidationError(f"{instance!r} is not a multiple of {step}")


def _exact(number: int | float) -> Fraction:
    return Fraction(number) if isinstance(number, int) else Fraction(Decimal(repr(number)))
