"""Values of plain types as JSON, whose types it lacks."""

from __future__ import annotations

from collections.abc import Callable, Set
from decimal import Decimal
from fractions import Fraction
from numbers import Rational
from typing import Any

MAX_DEPTH, MAX_VALUES = 100, 5_000_000  # of a result; what is larger equals nothing
_SMALL = 2**63  # JSON readers limit the digits of a number
UNKNOWN = ["unknown"]


def encode(value: Any) -> Any:
    """Return a value in a form that JSON can hold and `decode` reads; one of an unknown type becomes `["unknown"]`."""
    try:
        return _Encoder().form(value, 0)
    except OverflowError:
        return UNKNOWN


class _Encoder:
    """Encodes one value, and counts the values in it."""

    def __init__(self) -> None:
        self._left = MAX_VALUES

    def form(self, value: Any, depth: int) -> Any:
        self._left -= 1
        if self._left < 0 or depth > MAX_DEPTH:
            raise OverflowError
        match value:
            case None | bool():
                return value
            case int():
                number = int.__int__(value)
                return number if -_SMALL < number < _SMALL else ["int", hex(number)]
            case float():
                return float.__float__(value)
            case str():
                return str.__str__(value)
            case complex():
                return ["complex", value.real, value.imag]
            case bytes() | bytearray():
                return ["bytes", value.hex()]
            case list():
                return ["list", *(self.form(element, depth + 1) for element in value)]
            case tuple():
                return ["tuple", *(self.form(element, depth + 1) for element in value)]
            case dict():
                pairs = ((self.form(key, depth + 1), self.form(of_key, depth + 1)) for key, of_key in value.items())
                return ["dict", *(part for pair in pairs for part in pair)]
            case Set():
                return ["set", *(self.form(element, depth + 1) for element in value)]
            case Decimal():
                return ["decimal", str(value)]
        if type(value).__module__ == "numpy" and getattr(value, "shape", None) == ():
            return self.form(value.item(), depth + 1)
        if isinstance(value, Rational):
            return ["fraction", hex(value.numerator), hex(value.denominator)]
        return UNKNOWN


def elements(result: Any) -> Any:
    """Return a result as a set, for tests that compare only that; None if it is none."""
    if isinstance(result, str | list | tuple | dict | Set) or result is None:
        return None  # can be made from the result itself
    try:
        return encode(set(result))
    except Exception:
        return None


def decode(form: Any) -> Any:
    """Return the value that `encode` was given.

    Raises:
        ValueError: the form is none of `encode`, or its value is unknown.
    """
    if not isinstance(form, list):
        if isinstance(form, dict):
            raise ValueError("no form of a value")
        return form
    kind, *parts = form
    make = _MAKERS.get(kind) if isinstance(kind, str) else None
    if make is None:
        raise ValueError("a value of an unknown type")
    try:
        return make(parts)
    except (ArithmeticError, IndexError, TypeError, ValueError) as error:
        raise ValueError(f"no form of a value: {error}") from None


def _each(parts: list[Any]) -> list[Any]:
    return [decode(part) for part in parts]


def _pairs(parts: list[Any]) -> dict[Any, Any]:
    return dict(zip(_each(parts[::2]), _each(parts[1::2]), strict=True))


_MAKERS: dict[str, Callable[[list[Any]], Any]] = {
    "int": lambda parts: int(parts[0], 16),
    "complex": lambda parts: complex(*parts),
    "bytes": lambda parts: bytes.fromhex(parts[0]),
    "list": _each,
    "tuple": lambda parts: tuple(_each(parts)),
    "dict": _pairs,
    "set": lambda parts: set(_each(parts)),
    "decimal": lambda parts: Decimal(parts[0]),
    "fraction": lambda parts: Fraction(int(parts[0], 16), int(parts[1], 16)),
}
