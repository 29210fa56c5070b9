"""Tools are offered with `strict: true` only where their schema keeps its rules."""

from __future__ import annotations

from typing import Any, Literal

import pydantic
import pytest

import gymq
from gymq.resources.strict_schema import keeps_strict_rules
from gymq.resources.tools import tool_of


class Point(pydantic.BaseModel):
    x: int


class Closed(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    x: int


class Tools:
    @gymq.tool
    async def plain(self, text: str, kind: Literal["a", "b"], lines: list[int], more: str | None) -> str:
        return text

    @gymq.tool
    async def nothing(self) -> None: ...

    @gymq.tool
    async def closed(self, point: Closed) -> None: ...

    @gymq.tool
    async def default(self, text: str, times: int = 1) -> None: ...

    @gymq.tool
    async def nested(self, points: list[Point]) -> None: ...

    @gymq.tool
    async def mapping(self, values: dict[str, str]) -> None: ...

    @gymq.tool
    async def anything(self, value: Any) -> None: ...

    @gymq.tool
    async def pair(self, value: tuple[int, int]) -> None: ...


@pytest.mark.parametrize(
    ("name", "strict"),
    [
        ("plain", True),
        ("nothing", True),
        ("closed", True),
        ("default", False),
        ("nested", False),
        ("mapping", False),
        ("anything", False),
        ("pair", False),
    ],
)
def test_a_tool_is_strict_if_its_schema_keeps_the_rules(name: str, strict: bool) -> None:
    assert tool_of(getattr(Tools, name)).schema()["strict"] is strict


@pytest.mark.parametrize(
    ("value", "is_strict"),
    [
        ({"$ref": "#/$defs/Point"}, True),
        ({"$ref": "#/$defs/Point", "description": "Where."}, False),
        ({"type": "array"}, False),
        ({"type": "object", "properties": {"x": {"type": "integer"}}, "additionalProperties": False}, False),
    ],
)
def test_a_schema_that_the_provider_would_refuse_is_not_strict(value: dict[str, Any], is_strict: bool) -> None:
    whole = {"type": "object", "properties": {"a": value}, "required": ["a"], "additionalProperties": False}
    assert keeps_strict_rules(whole) is is_strict
