"""Numbers that are close, alone and in nested lists, as `numpy.allclose` compares them."""

from __future__ import annotations

import cmath
from typing import Any

RELATIVE = 1e-7
_INTEGERS = range(-(2**63), 2**64)  # that an array can hold


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
