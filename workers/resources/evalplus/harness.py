"""Runs a program and calls one of its functions with inputs. It lies in a sandbox, and only needs the standard library.

The request is JSON on stdin: `code`, `entry_point`, `inputs` (encoded argument lists), `limits_s` (seconds for each
call) and `mark`. Each line of the answer is JSON on the original stdout: `["error", text]` if the program could not be
loaded; for each call `["failed"]` or `["value", result, exact, elements, seconds]`; at the end `["end", mark]`.
Whatever the program itself prints goes nowhere, and reading stdin fails.

With the argument `--test` the request has `test`, code that defines `check(candidate)`, and `reference`, a program that
is right, whose names the test may use. The program under test then runs in a process of its own, which sees neither.
The answer is `["invalid", text]` if the reference could not be loaded, or an argument of the test is not of a plain
type, `["error", text]` also if the test failed, or `["end", mark]`.
"""

from __future__ import annotations

import ctypes
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
from typing import IO, Any, NoReturn

MAX_DEPTH, MAX_VALUES = 100, 5_000_000  # of a result; what is larger equals nothing
_SHOWN_CHARACTERS = 10_000
_SMALL = 2**63  # JSON readers limit the digits of a number
_EXACT = (type(None), bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset)
_UNKNOWN = ["unknown"]
_PR_SET_DUMPABLE = 4


class _TooLargeError(Exception):
    """A result has too many values, or too many levels."""


class _OutOfTimeError(Exception):
    """A call has used up its time."""


class _InvalidTaskError(Exception):
    """The reference cannot be loaded, or the test passes what cannot be handed to another process."""


class _ProgramError(Exception):
    """The program under test raised an exception; the text is that of it."""


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
    program = _Program() if sys.argv[1:] == ["--test"] else None  # before it could see the request
    request = json.loads(sys.stdin.buffer.read())
    say, leave = _speaker(open(os.dup(1), "w", encoding="ascii")), os._exit  # noqa: SIM115 - as long as the process
    _detach()
    mark, given, function = request.pop("mark"), request["inputs"], None
    try:
        if program is None:
            function = _load(request["code"])[request["entry_point"]]
        else:
            _test(program, request)
    except _InvalidTaskError as error:
        say("invalid", str(error))
    except BaseException as error:
        say("error", _text_of(error))
    else:
        for arguments, limit_s in zip(given, request["limits_s"], strict=True):
            say(*_call(function, arguments, limit_s))
        say("end", mark)
    leave(0)


def _speaker(file: IO[str]) -> Callable[..., None]:
    """Return what writes a line of JSON."""
    itself, leave = os.getpid(), os._exit

    def say(*words: Any) -> None:
        if os.getpid() != itself:  # the program forked, and this is the child
            leave(0)
        file.write(json.dumps(words) + "\n")
        file.flush()

    return say


def _detach() -> None:
    """Print to nowhere from now on, read nothing, and work in an empty folder."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(nothing, fd)
    sys.stdin = _NoInput()
    os.chdir(tempfile.mkdtemp())


class _Program:
    """A program in a process of its own, forked from one that has read nothing yet and cannot be looked into."""

    def __init__(self) -> None:
        requests, answers = os.pipe(), os.pipe()
        theirs, ours = (requests[0], answers[1]), (requests[1], answers[0])
        is_program = os.fork() == 0
        for fd in ours if is_program else theirs:
            os.close(fd)
        if is_program:
            _serve(os.fdopen(requests[0]), _speaker(os.fdopen(answers[1], "w")))
        self._requests, self._answers = os.fdopen(requests[1], "w"), os.fdopen(answers[0])
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)

    def load(self, code: str, entry_point: str) -> Callable[..., Any]:
        """Return the program's function, with results of plain types: an object of its own may equal everything."""
        self._ask("load", code, entry_point)
        return lambda *arguments, **named: decode(self._ask("call", _plain(arguments), _plain(named)))

    def _ask(self, *words: Any) -> Any:
        try:
            self._requests.write(json.dumps(words) + "\n")
            self._requests.flush()
            answer = self._answers.readline()
        except BrokenPipeError:
            answer = ""
        match json.loads(answer or "null"):
            case ["said", said]:
                return said
            case ["error", said]:
                raise _ProgramError(said)
        os._exit(0)  # the program ended its process, so there is nothing to say


def _plain(arguments: Any) -> Any:
    form = encode(arguments)
    try:
        decode(form)
    except ValueError:
        raise _InvalidTaskError("the test passes an argument of another than a plain type") from None
    return form


def _serve(requests: IO[str], say: Callable[..., None]) -> NoReturn:
    """Load a program and call its function, as often as asked."""
    leave = os._exit
    function: Any = None
    _detach()
    for line in requests:
        try:
            match json.loads(line):
                case ["load", code, entry_point]:
                    function, said = _load(code)[entry_point], None
                case [_, arguments, named]:
                    said = encode(function(*decode(arguments), **decode(named)))
        except BaseException as error:
            say("error", _text_of(error))
        else:
            say("said", said)
    leave(0)


def _test(program: _Program, request: dict[str, Any]) -> None:
    """Raise what the test raises, or the program, or that the task is not valid."""
    try:
        names = _load(request["reference"])
    except BaseException as error:
        raise _InvalidTaskError(_text_of(error)) from None
    function = program.load(request["code"], request["entry_point"])
    exec(compile(request["test"], "<string>", "exec", dont_inherit=True), names)
    names["check"](function)


def _load(code: str) -> dict[str, Any]:
    module = sys.modules["solution"] = ModuleType("solution")
    exec(compile(code, "<string>", "exec", dont_inherit=True), module.__dict__)
    return module.__dict__


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
