"""Comparing what a function returned with what the reference returned. It knows the tasks with rules of their own."""

from __future__ import annotations

import cmath
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gymq.ext.functions.harness.values import decode

RELATIVE = 1e-7
_INTEGERS = range(-(2**63), 2**64)  # that an array can hold

Dataset = Literal["humaneval", "mbpp"]

TOLERANCE_OF_FLOATS = 1e-6

# Entry points of MBPP whose results are compared as sets, and those where only counts whether there is a result.
AS_SETS = frozenset(
    {
        *("similar_elements", "find_char_long", "common_in_nested_lists", "extract_singly"),
        *("larg_nnum", "intersection_array", "find_dissimilar", "Diff"),
    }
)
WHETHER_ANY = frozenset({"check_str", "text_match_three", "text_starta_endb"})


class _Unknown:
    """A value that cannot leave the sandbox. It equals nothing."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, _other: object) -> bool:
        return False


@dataclass(frozen=True)
class Returned:
    """The result of one call.

    Attributes:
        value: a `_Unknown` for a value that cannot be compared.
        exact: whether its type is that of the value, and no subclass of it.
        elements: what an iterator gave; None: the value itself has its elements.
        seconds: that the call took.
    """

    value: Any
    exact: bool
    elements: Any
    seconds: float

    @property
    def is_known(self) -> bool:
        return not isinstance(self.value, _Unknown)


def returned(line: bytes) -> Returned | None:
    """Return the result in a line of the harness; None if the call failed, or the line is none of the harness."""
    try:
        match json.loads(line):
            case ["value", form, bool(exact), elements, float(seconds)]:
                return Returned(_decoded(form), exact, None if elements is None else _decoded(elements), seconds)
    except (ValueError, RecursionError):
        return None
    return None


def _decoded(form: Any) -> Any:
    try:
        return decode(form)
    except ValueError:
        return _Unknown()


def needs_known(dataset: Dataset, entry_point: str) -> bool:
    """Return whether results of the reference are compared, rather than only whether there are any."""
    return dataset != "mbpp" or entry_point not in {"are_equivalent", *WHETHER_ANY}


def passed_tests(
    dataset: Dataset,
    entry_point: str,
    tolerance: float,
    inputs: Sequence[Any],
    expected: Sequence[bytes],
    lines: Sequence[bytes],
) -> list[int]:
    """Return 1 or 0 for each test that was reached.

    Args:
        inputs: encoded argument lists.
        expected: lines of the harness that ran the reference.
        lines: of the harness that ran the program under test; a program can write what it likes into them.
    """
    comparison = _Comparison(dataset, entry_point, tolerance)
    tests = zip(inputs, expected, lines, strict=False)
    return [int(comparison.passes(decode(given), returned(wanted), returned(line))) for given, wanted, line in tests]


class _Comparison:
    """The rules of one task. A tolerance for floats stays on from the first test that needs it."""

    def __init__(self, dataset: Dataset, entry_point: str, tolerance: float) -> None:
        self._rule = (dataset, entry_point)
        self._tolerance = tolerance

    def passes(self, arguments: Sequence[Any], expected: Returned | None, result: Returned | None) -> bool:
        if result is None or expected is None:
            return False
        try:
            return self._passes(arguments, expected, result)
        except (ArithmeticError, TypeError, ValueError):  # the result is of the wrong kind
            return False

    def _passes(self, arguments: Sequence[Any], expected: Returned, result: Returned) -> bool:
        if self._rule == ("humaneval", "find_zero"):
            return abs(_polynomial(arguments[0], result.value)) <= self._tolerance
        wanted = expected.value
        if self._rule[0] == "mbpp" and self._rule[1] in WHETHER_ANY:
            wanted = wanted is not None
        equal = self._is_equal(arguments, wanted, result)
        if self._tolerance == 0 and _is_floats(wanted):
            self._tolerance = TOLERANCE_OF_FLOATS
        if equal or not self._tolerance:
            return equal
        same_type = type(result.value) is type(wanted) and result.exact and expected.exact
        if not same_type or (isinstance(wanted, list | tuple) and len(result.value) != len(wanted)):
            return False
        return all_close(result.value, wanted, self._tolerance)

    def _is_equal(self, arguments: Sequence[Any], wanted: Any, result: Returned) -> bool:
        value = result.value
        equal = bool(value == wanted)
        match self._rule:
            case "mbpp", "are_equivalent":
                return True
            case "mbpp", "sum_div":
                return equal or bool(value == 0)
            case "mbpp", "surface_Area":
                return equal or bool(abs(value - _surface(*arguments)) <= self._tolerance)
            case "mbpp", "digit_distance_nums":
                return equal or bool(value == _digit_distance(*arguments))
            case "mbpp", name if name in AS_SETS:
                return set(value if result.elements is None else result.elements) == set(wanted)
            case "mbpp", name if name in WHETHER_ANY:
                return bool(value == wanted) if isinstance(value, bool) else wanted is (value is not None)
        return equal


def _is_floats(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return bool(value) and all(isinstance(element, float) for element in value)
    return isinstance(value, float)


def _polynomial(coefficients: Sequence[float], x: float) -> float:
    return sum(coefficient * math.pow(x, power) for power, coefficient in enumerate(coefficients))


def _surface(base: float, height: float) -> int:
    """Return the surface of a square pyramid."""
    return round(2 * base * math.sqrt((base / 2) ** 2 + height**2) + base**2)


def _digit_distance(one: int, other: int) -> int:
    """Return the sum of the differences of the digits."""
    length = max(len(str(one)), len(str(other)))
    pairs = zip(str(one).zfill(length), str(other).zfill(length), strict=True)
    return sum(abs(int(digit) - int(with_digit)) for digit, with_digit in pairs)


def all_close(result: Any, expected: Any, tolerance: float) -> bool:
    """Return whether each number differs by no more than the tolerance and 1e-7 of the expected one.

    Lists and tuples are arrays: of a regular shape, and a dimension of length 1 fits any.

    Raises:
        TypeError: something is not a number.
        ValueError: the shapes do not fit, or are none.
    """
    return _all_close(result, _shape(result), expected, _shape(expected), tolerance)


def _shape(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list | tuple):
        if not isinstance(value, int | float | complex) or (isinstance(value, int) and value not in _INTEGERS):
            raise TypeError("no number of an array")
        return ()
    shapes = {_shape(element) for element in value}
    if len(shapes) > 1:
        raise ValueError("an array has rows of the same length")
    return (len(value), *(shapes.pop() if shapes else ()))


def _all_close(
    result: Any, shape: tuple[int, ...], expected: Any, expected_shape: tuple[int, ...], tolerance: float
) -> bool:
    if not shape and not expected_shape:
        return _is_close(result, expected, tolerance)
    if len(shape) > len(expected_shape):
        return all(_all_close(part, shape[1:], expected, expected_shape, tolerance) for part in result)
    if len(shape) < len(expected_shape):
        return all(_all_close(result, shape, part, expected_shape[1:], tolerance) for part in expected)
    if shape[0] != expected_shape[0] and 1 not in (shape[0], expected_shape[0]):
        raise ValueError("arrays of different lengths")
    length = expected_shape[0] if shape[0] == 1 else shape[0]
    ours, theirs = (list(values) * (length if len(values) == 1 else 1) for values in (result, expected))
    return all(
        _all_close(part, shape[1:], other, expected_shape[1:], tolerance)
        for part, other in zip(ours, theirs, strict=True)
    )


def _is_close(result: complex, expected: complex, tolerance: float) -> bool:
    if result == expected:
        return True
    return cmath.isfinite(expected) and abs(result - expected) <= tolerance + RELATIVE * abs(expected)
