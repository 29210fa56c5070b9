"""math_advanced_calculations: calculators of another universe, whose tools compute something else than they are called.

What the tools gave decides, not what the model says: who calculates in the head gets the numbers of this universe.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pydantic

import gymq

PASSING_ON = frozenset({"negate", "return_constant"})
"""Tools that return what they are given."""

_NUMERAL = re.compile(r"\d[\d,]*(?:\.\d+)?(?:[eE][+-]?\d+)?|\.\d+")
_WORD = re.compile(r"[a-z]+")
_UP_TO_TWENTY = """
zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen
nineteen twenty
"""
_SPELLED = {word: float(number) for number, word in enumerate(_UP_TO_TWENTY.split())}


class CalculationRow(gymq.Row):
    id: int
    depth: int
    breadth: int
    ground_truth: list[Any] | dict[str, Any]

    @pydantic.field_validator("ground_truth", mode="before")
    @classmethod
    def _read(cls, given: Any) -> Any:
        """Return the expected values, which the data sets have as JSON inside a text."""
        if isinstance(given, list):
            return given
        if not isinstance(given, str):
            raise ValueError("must be a list, or text that contains one as JSON")
        try:
            values = json.loads(given)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"is not JSON: {error}") from None
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

    class Options(gymq.WorkerOptions):
        hardened: bool = True  # False: a number that a tool was only given to pass on counts too

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
        """Run one tool. Only an argument that is not a number is refused as invalid; other errors occur in the tool."""
        try:
            given = Arguments.model_validate(arguments).model_dump(exclude_none=True)
        except pydantic.ValidationError as error:
            problem = error.errors()[0]
            raise gymq.ToolError(422, ": ".join([*map(str, problem["loc"]), problem["msg"]])) from None
        if name not in self.tools:
            raise gymq.ToolError(404, "Function not found")
        result = self.tools[name].function(self, **given)
        if not math.isfinite(result):
            raise OverflowError("the result is not a finite number")
        return {"solution": result}

    async def verify(self, request: gymq.VerifyRequest[CalculationRow]) -> gymq.Verdict:
        items = request.response["output"]
        results = (
            results_of_tools(items, stated_numbers(request.row.responses_create_params["input"]))
            if self.options.hardened
            else [solution(item.get("output")) for item in items if item.get("type") == "function_call_output"]
        )
        # `in` would find a NaN by its identity; a null stands for a result that could not be read.
        met = [any(value == result for result in results) for value in request.row.ground_truth]
        return gymq.Verdict(float(all(met)))


def solution(output: Any) -> float | None:
    """Return the number in a tool's answer; None if there is none."""
    try:
        return float(json.loads(output)["solution"])
    except (TypeError, ValueError, LookupError, OverflowError, RecursionError):
        return None


def results_of_tools(items: Sequence[Mapping[str, Any]], stated: set[float]) -> list[float | None]:
    """Return the results of tools, but not what a tool only passed on although no task and no tool had named it.

    Args:
        items: the output items of a response.
        stated: the numbers in the task.
    """
    names = {item.get("call_id"): item.get("name") for item in items if item.get("type") == "function_call"}
    results: list[float | None] = []
    for item in items:
        if item.get("type") != "function_call_output":
            continue
        result = solution(item.get("output"))
        passed_on = names.get(item.get("call_id")) in PASSING_ON and result is not None
        if not passed_on or result in results or abs(result or 0.0) in stated:
            results.append(result)
    return results


def stated_numbers(given: Any) -> set[float]:
    """Return the numbers in a request's `input`, without their signs: in digits, or spelled up to twenty."""
    text = "\n".join(_texts(given))
    spelled = {_SPELLED[word] for word in _WORD.findall(text.lower()) if word in _SPELLED}
    return {float(numeral.replace(",", "")) for numeral in _NUMERAL.findall(text)} | spelled


def _texts(given: Any) -> Iterator[str]:
    if isinstance(given, str):
        yield given
    elif isinstance(given, list):
        for one in given:
            yield from _texts(one)
    elif isinstance(given, dict):
        for name in ("content", "text"):
            yield from _texts(given.get(name))
