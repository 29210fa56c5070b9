"""The altered laws of NewtonBench (https://github.com/HKUST-KnowComp/NewtonBench), as formulas, with their ranges."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

Values = Mapping[str, float]

_NAMES = ("e", "exp", "log", "sqrt", "sin", "cos", "tan", "asin", "acos", "atan", "radians", "degrees")
_MATH = {"__builtins__": {}, **{name: getattr(math, name) for name in _NAMES}}


class Parameter(msgspec.Struct, frozen=True):
    """One parameter of a law, and the range from which points are drawn."""

    meaning: str
    low: float
    high: float
    argument: str = ""  # of the experiment; default: the same name
    default: float | None = None  # of the experiment; None: it has to be given
    log: bool = True  # uniform in the logarithm, otherwise in the value

    def draw(self, source: random.Random) -> float:
        if self.log:
            return math.exp(source.uniform(math.log(self.low), math.log(self.high)))
        return source.uniform(self.low, self.high)


class Module(msgspec.Struct, frozen=True):
    """One law of physics, altered in nine ways.

    Attributes:
        result: what is measured.
        formulas: by version, then by difficulty.
        other_arguments: of experiments with other systems.
        zero_unless_positive: parameters without whose positive values the result is 0.
        zero_at_zero: parameters with which it is 0 where they are.
        undefined_below_zero: parameters with whose negative values there is no result.
        must_be_positive: whether there is none that is not positive.
    """

    name: str
    result: str
    parameters: dict[str, Parameter]
    formulas: dict[str, dict[str, str]]
    other_arguments: tuple[str, ...] = ()
    zero_unless_positive: tuple[str, ...] = ()
    zero_at_zero: tuple[str, ...] = ()
    undefined_below_zero: tuple[str, ...] = ()
    must_be_positive: bool = False

    def formula(self, difficulty: str, version: str) -> str:
        return self.formulas[version][difficulty]

    def law(self, difficulty: str, version: str) -> Callable[[Values], float]:
        """Return the law as a function; NaN where it is not defined or too large."""
        code = compile(self.formula(difficulty, version), self.name, "eval")

        def value_at(values: Values) -> float:
            if any(values[name] <= 0 for name in self.zero_unless_positive):
                return 0.0
            if any(values[name] == 0 for name in self.zero_at_zero):
                return 0.0
            if any(values[name] < 0 for name in self.undefined_below_zero):
                return math.nan
            try:
                value = eval(code, _MATH, values)
            except (ArithmeticError, TypeError, ValueError):  # some functions take no complex number
                return math.nan
            return math.nan if isinstance(value, complex) or (self.must_be_positive and not value > 0) else value

        return value_at

    def points(self, count: int) -> list[dict[str, float]]:
        """Points at random, the same each time."""
        source = random.Random(self.name)
        return [{name: parameter.draw(source) for name, parameter in self.parameters.items()} for _ in range(count)]


_LAWS = Path(__file__).with_name("laws.json").read_bytes()
MODULES = {module.name: module for module in msgspec.json.decode(_LAWS, type=list[Module])}
