"""Runs a program and calls one of its functions with inputs. It lies in a sandbox, and only needs the standard library.

The request is JSON on stdin: `code`, `entry_point`, `test` (null, or code that defines `check(candidate)`, which gets
the function), `inputs` (encoded argument lists), `limits_s` (seconds for each call) and `mark`. Each line of the answer
is JSON on the original stdout: `["error", text]` if the program could not be loaded or its test failed; for each call
`["failed"]` or `["value", result, exact, elements, seconds]`; at the end `["end", mark]`. Whatever the program itself
prints goes nowhere, and reading stdin fails.
"""

from __future__ import annotations

import builtins
import io
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Set
from decimal import Decimal
from fractions import Fraction
from numbers import Rational
from types import FrameType, ModuleType
from typing import Any, NoReturn

MAX_DEPTH, MAX_VALUES = 100, 5_000_000  # of a result; what is larger equals nothing
_SHOWN_CHARACTERS = 10_000
_SMALL = 2**63  # JSON readers limit the digits of a number
_EXACT = (type(None), bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset)
_UNKNOWN = ["unknown"]


class _TooLargeError(Exception):
    """A result has too many values, or too many levels."""


class _OutOfTimeError(Exception):
    """A call has used up its time."""


class _NoInput(io.TextIOBase):
    def readable(self) -> bool:
        return False

    def read(self, _size: int | None = -1) -> NoReturn:
        raise OSError

    def readline(self, _size: int | None = -1) -> NoReturn:
        raise OSError

    def readlines(self, _hint: int | None = -1) -> NoReturn:
        raise OSError


def main() -> None:
    request = json.loads(sys.stdin.buffer.read())
    answers = open(os.dup(1), "w", encoding="ascii")  # noqa: SIM115 - as long as the process
    itself, leave = os.getpid(), os._exit
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(nothing, fd)
    sys.stdin = _NoInput()
    os.chdir(tempfile.mkdtemp())

    def say(*words: Any) -> None:
        if os.getpid() != itself:  # the program forked, and this is the child
            leave(0)
        answers.write(json.dumps(words) + "\n")
        answers.flush()

    mark, test, given = request.pop("mark"), request["test"], request["inputs"]
    own = dict(vars(builtins))  # before the program can change them
    try:
        names = _load(request["code"])
        function = names[request["entry_point"]]
        if test is not None:
            # The test uses the program's helpers, but `abs` and the like are Python's.
            names = {name: value for name, value in names.items() if name not in own} | {"__builtins__": own}
            exec(compile(test, "<string>", "exec", dont_inherit=True), names)
            names["check"](_with_plain_results(function))
    except BaseException as error:
        say("error", _text_of(error))
    else:
        for arguments, limit_s in zip(given, request["limits_s"], strict=True):
            say(*_call(function, arguments, limit_s))
        say("end", mark)
    leave(0)


def _load(code: str) -> dict[str, Any]:
    module = sys.modules["solution"] = ModuleType("solution")
    exec(compile(code, "<string>", "exec", dont_inherit=True), module.__dict__)
    return module.__dict__


def _with_plain_results(function: Any) -> Callable[..., Any]:
    """Return the function with results of plain types only: an object of the program may equal everything."""
    return lambda *arguments, **named: decode(encode(function(*arguments, **named)))


def _call(function: Any, arguments: Any, limit_s: float) -> list[Any]:
    began = time.monotonic()
    try:
        _alarm_after(limit_s)
        try:
            result = function(*decode(arguments))
            exact = type(result) in _EXACT
            return ["value", encode(result), exact, _elements(result), time.monotonic() - began]
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except BaseException:
        return ["failed"]


def _alarm_after(limit_s: float) -> None:
    """Raise an error here after the seconds; those in which other programs have the processor do not count."""
    began, waited = time.monotonic(), _waited_s()

    def on_alarm(_number: int, _frame: FrameType | None) -> None:
        left = limit_s - (time.monotonic() - began - (_waited_s() - waited))
        if left <= 0:
            raise _OutOfTimeError("out of time")
        signal.setitimer(signal.ITIMER_REAL, max(left, 0.01))

    signal.signal(signal.SIGALRM, on_alarm)
    signal.setitimer(signal.ITIMER_REAL, limit_s)


def _waited_s() -> float:
    """Return for how long this process waited for a processor; 0 where the kernel does not say."""
    try:
        with open("/proc/self/schedstat", "rb") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def _text_of(error: BaseException) -> str:
    try:
        return str(error)[:_SHOWN_CHARACTERS]
    except Exception:
        return type(error).__name__


# Values as JSON ------------------------------------------------------------------------------------------------------


def encode(value: Any) -> Any:
    """Return a value in a form that JSON can hold and `decode` reads; one of an unknown type becomes `["unknown"]`."""
    try:
        return _Encoder().form(value, 0)
    except _TooLargeError:
        return _UNKNOWN


class _Encoder:
    """Encodes one value, and counts the values in it."""

    def __init__(self) -> None:
        self._left = MAX_VALUES

    def form(self, value: Any, depth: int) -> Any:
        self._left -= 1
        if self._left < 0 or depth > MAX_DEPTH:
            raise _TooLargeError
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
        return _UNKNOWN


def _elements(result: Any) -> Any:
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
    except RecursionError:
        raise
    except Exception as error:
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


if __name__ == "__main__":
    main()
