"""Invented arguments fit the schemas that tools really have; pydantic decides."""

from __future__ import annotations

import random
from typing import Annotated, Any, Literal

import pydantic
import pytest
from gymq.workers.models.simulated_model.invention import BadSchema, invent


class Point(pydantic.BaseModel):
    x: Annotated[float, pydantic.Field(gt=0, lt=1)]
    y: Annotated[int, pydantic.Field(ge=10, le=12, multiple_of=2)]


class Node(pydantic.BaseModel):
    value: int
    children: list[Node]
    parent: Node | None


class Booking(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")

    name: Annotated[str, pydantic.Field(min_length=20, max_length=30)]
    short: Annotated[str, pydantic.Field(max_length=2)]
    kind: Literal["a", "b"]
    always: Literal["c"]
    day: pydantic.AwareDatetime
    mail: str
    number: int | None
    negative: Annotated[int, pydantic.Field(lt=-5)]
    flags: Annotated[list[bool], pydantic.Field(min_length=2, max_length=3)]
    place: Point
    tree: Node
    table: dict[str, Any]
    optional: str = "not needed"


@pytest.mark.parametrize("seed", range(50))
def test_values_fit(seed: int) -> None:
    Booking.model_validate(invent(Booking.model_json_schema(), random.Random(seed)))


def test_the_seed_decides() -> None:
    schema = Booking.model_json_schema()
    assert invent(schema, random.Random(1)) == invent(schema, random.Random(1))
    assert any(invent(schema, random.Random(1)) != invent(schema, random.Random(seed)) for seed in range(2, 6))


def test_a_schema_that_never_ends_is_cut_off() -> None:
    schema: dict[str, Any] = {
        "$ref": "#/$defs/a",
        "$defs": {"a": {"type": "object", "required": ["a"], "properties": {"a": {}}}},
    }
    schema["$defs"]["a"]["properties"]["a"] = {"$ref": "#/$defs/a"}
    assert "a" in invent(schema, random.Random(0))


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer", "minimum": "low"},
        {"$ref": "#/$defs/missing"},
        {"type": "array", "minItems": "many"},
        {"type": []},
        {"enum": 5},
        {"type": "integer", "multipleOf": 0, "minimum": "x"},
    ],
)
def test_what_is_no_schema_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(BadSchema):
        invent(schema, random.Random(0))
