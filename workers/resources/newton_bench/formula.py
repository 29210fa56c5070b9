"""Arithmetic written as text, so that a law is computed and shown from one source."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping

Function = Callable[[Mapping[str, float]], float]

_OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
_FUNCTIONS = ("exp", "log", "sqrt", "sin", "cos", "tan", "asin", "acos", "atan", "radians", "degrees")
_CONSTANTS = {"e": math.e, "pi": math.pi}


def compiled(text: str) -> Function:
    """Return the formula as a function of its variables; NaN where it is not defined or too large.

    Raises:
        ValueError: it holds anything but numbers, names, + - * / ** and functions of `math`.
    """
    function = _compiled(ast.parse(text, mode="eval").body)

    def guarded(values: Mapping[str, float]) -> float:
        try:
            value = function(values)
        except (ValueError, ZeroDivisionError, OverflowError):
            return math.nan
        return math.nan if isinstance(value, complex) else value

    return guarded


def _compiled(node: ast.expr) -> Function:
    match node:
        case ast.Constant(value=int() | float() as number):
            return lambda values: number
        case ast.Name(id=name) if name in _CONSTANTS:
            return lambda values: _CONSTANTS[name]
        case ast.Name(id=name):
            return lambda values: values[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            inner = _compiled(operand)
            return lambda values: -inner(values)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            apply, first, second = _OPERATORS[type(op)], _compiled(left), _compiled(right)
            return lambda values: apply(first(values), second(values))
        case ast.Call(func=ast.Name(id=name), args=[argument]) if name in _FUNCTIONS:
            function, inner = getattr(math, name), _compiled(argument)
            return lambda values: function(inner(values))
    raise ValueError(f"{ast.unparse(node)} is not arithmetic")
