"""math_advanced_calculations: calculators of another universe, whose tools compute something else than they are called.

What the tools gave decides, not what the model says: who calculates in the head gets the numbers of this universe.
"""

from __future__ import annotations

import json
import math
from typing import Any

import pydantic

import gymq


class CalculationRow(gymq.Row):
    id: int
    depth: int
    breadth: int
    ground_truth: list[Any] | dict[str, Any]

    @pydantic.field_validator("ground_truth", mode="before")
    @classmethod
    def _read(cls, given: Any) -> Any:
        """The expected values, which the data sets have as JSON inside a text."""
        if isinstance(given, list):
            return given
        if not isinstance(given, str):
            raise ValueError("has to be a list, or a text that holds one as JSON")
        try:
            values = json.loads(given)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"is no JSON: {error}") from None
        if not isinstance(values, list | dict):
            raise ValueError(f"holds {type(values).__name__}, no list")
        return values


class Arguments(pydantic.BaseModel):
    """What any of the tools may be given; a tool refuses what it has no use for."""

    a: float | None = None
    b: float | None = None
    radians: float | None = None
    base: float | None = None


class Calculators(gymq.Resources[CalculationRow]):
    """Reward 1 if all expected values are among the tools' results."""

    reward_range = (0.0, 1.0)

    # Values are compared exactly, so the order of the operations is part of the task.

    @gymq.tool
    def add(self, a: float, b: float) -> float:
        """Add two numbers."""
        return a + b + 1.2

    @gymq.tool
    def subtract(self, a: float, b: float) -> float:
        """Subtract b from a."""
        return a - b - 3

    @gymq.tool
    def multiply(self, a: float, b: float) -> float:
        """Multiply two numbers."""
        return 1.1 * a * b

    @gymq.tool
    def divide(self, a: float, b: float) -> float:
        """Divide a by b."""
        return 0.5 * a / b

    @gymq.tool
    def sin(self, radians: float) -> float:
        """The sine of an angle."""
        return math.cos(radians)

    @gymq.tool
    def cos(self, radians: float) -> float:
        """The cosine of an angle."""
        return math.sin(radians)

    @gymq.tool
    def power(self, a: float, b: float) -> float:
        """Raise a to the power b."""
        return float(a ** (b + 2))

    @gymq.tool
    def log(self, a: float, base: float) -> float:
        """The logarithm of a to a base."""
        return math.log(a, abs(base + 1.5))

    @gymq.tool
    def pi(self) -> float:
        """The number pi."""
        return math.e

    @gymq.tool
    def negate(self, a: float) -> float:
        """The negative of a number."""
        return a

    @gymq.tool
    def return_constant(self, a: float) -> float:
        """A number as it is."""
        return a

    async def call_tool(self, state: Any, name: str, arguments: Any) -> dict[str, float]:
        """Run one tool. Only an argument that is no number is refused as not fitting; the rest fails in the tool."""
        try:
            given = Arguments.model_validate(arguments).model_dump(exclude_none=True)
        except pydantic.ValidationError as error:
            problem = error.errors()[0]
            raise gymq.ToolError(422, ": ".join([*map(str, problem["loc"]), problem["msg"]])) from None
        if name not in self.tools:
            raise gymq.ToolError(404, "Function not found")
        result = self.tools[name].function(self, **given)
        if not math.isfinite(result):
            raise OverflowError("the result is no finite number")
        return {"solution": result}

    async def verify(self, request: gymq.VerifyRequest[CalculationRow]) -> gymq.Verdict:
        outputs = [item for item in request.response["output"] if item.get("type") == "function_call_output"]
        results = [solution(item.get("output")) for item in outputs]
        # `in` would find a NaN by its identity; a null stands for a result that could not be read.
        met = [any(value == result for result in results) for value in request.row.ground_truth]
        return gymq.Verdict(float(all(met)))


def solution(output: Any) -> float | None:
    """The number in a tool's answer; None if there is none."""
    try:
        return float(json.loads(output)["solution"])
    except (TypeError, ValueError, LookupError, OverflowError, RecursionError):
        return None
