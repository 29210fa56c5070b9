"""Runs a program and calls one of its functions with inputs. It lies in a sandbox, and only needs the standard library.

The request is JSON on stdin: `code`, `entry_point`, `inputs` (encoded argument lists), `limits_s` (seconds for each
call) and `mark`. Each line of the answer is JSON on the original stdout: `["error", text]` if the program could not be
loaded; for each call `["failed"]` or `["value", result, exact, elements, seconds]`; at the end `["end", mark]`.
Whatever the program itself prints goes nowhere, and reading stdin fails.

With the argument `--test` the request has `test`, code that defines `check(candidate)`, and `reference`, a program that
is right, whose names the test may use. The program under test then runs in a process of its own, which sees neither.
The answer is `["invalid", text]` if the reference could not be loaded, or an argument of the test is not of a plain
type, `["error", text]` also if the test failed, or `["end", mark]`.

With the argument `--tests` the request has `tests`: code in which each `assert`, each call that stands alone and each
function `test_...` is a test, and each other statement prepares for those below it. It calls the functions of the
program, which runs in a process of its own, by their names. The answer is `["tests", names]`, then `["passed"]` or
`["failed", text]` for each, and `["end", mark]`; or `["invalid", text]`.
"""

from __future__ import annotations

import ast
import builtins
import ctypes
import io
import itertools
import json
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Set
from decimal import Decimal
from fractions import Fraction
from numbers import Rational
from types import FrameType, ModuleType
from typing import IO, Any, NoReturn

MAX_DEPTH, MAX_VALUES = 100, 5_000_000  # of a result; what is larger equals nothing
_TESTS = "<tests>"  # name of their code in tracebacks
_SHOWN_CHARACTERS, _SHOWN_TITLE, _SHOWN_PROBLEM = 10_000, 200, 500
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
    """The program under test raised what is no `Exception`, such as SystemExit; the text is that of it."""


class _ProgramEndedError(BaseException):
    """The program ended its process. No `Exception`, so that a test that expects one does not take this for it."""


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
    program = _Program() if sys.argv[1:] else None  # before it could see the request
    request = json.loads(sys.stdin.buffer.read())
    say, leave = _speaker(open(os.dup(1), "w", encoding="ascii")), os._exit  # noqa: SIM115 - as long as the process
    _detach()
    mark, given, function = request.pop("mark"), request.get("inputs", []), None
    try:
        if program is None:
            function = _load(request["code"])[request["entry_point"]]
        elif sys.argv[1:] == ["--test"]:
            _test(program, request)
        else:
            _Tests(program, request["tests"]).run(request["code"], say)
    except _InvalidTaskError as error:
        say("invalid", str(error))
    except _ProgramEndedError:
        leave(0)  # there is nothing to say
    except BaseException as error:
        say("error", _text_of(error))
    else:
        for arguments, limit_s in zip(given, request.get("limits_s", []), strict=True):
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

    def load(self, code: str) -> dict[str, Any]:
        """Return the program's functions, with results of plain types: an object of its own may equal everything.

        Its other names are there too, if their values are of such types.
        """
        functions, values = self._ask("load", code)
        return {name: decode(form) for name, form in values.items()} | {name: self._calling(name) for name in functions}

    def _calling(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            form, is_iterator = self._ask("call", name, _plain(arguments), _plain(named))
            try:
                value = decode(form)
            except ValueError:
                raise ValueError(f"{name} returned a value that is not of a plain type") from None
            return iter(value) if is_iterator else value

        return call

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
            case ["error", str(said), str(kind)]:
                raise _raised(said, kind)
        raise _ProgramEndedError


def _raised(text: str, kind: str) -> Exception:
    """Return an exception like one of the program, for tests that expect it.

    Args:
        kind: the built-in class that its class is or derives from.
    """
    base = getattr(builtins, kind, None)
    if isinstance(base, type) and issubclass(base, Exception):
        cls: type[Exception] = type(kind, (base,), {"__str__": lambda _: text})
        try:
            return cls.__new__(cls)  # some cannot be initialised with a text
        except TypeError:
            pass
    return _ProgramError(text)


def _plain(arguments: Any) -> Any:
    form = encode(arguments)
    try:
        decode(form)
    except ValueError:
        raise _InvalidTaskError("the test passes an argument of another than a plain type") from None
    return form


def _serve(requests: IO[str], say: Callable[..., None]) -> NoReturn:
    """Load a program and call its functions, as often as asked."""
    leave = os._exit
    names: dict[str, Any] = {}
    said: Any
    _detach()
    for line in requests:
        try:
            match json.loads(line):
                case ["load", code]:
                    names = _load(code)
                    functions = [name for name, value in names.items() if callable(value)]
                    others = {name: encode(names[name]) for name in names.keys() - functions if name[:2] != "__"}
                    said = functions, {name: form for name, form in others.items() if form != _UNKNOWN}
                case [_, name, arguments, named]:
                    result = names[name](*decode(arguments), **decode(named))
                    is_iterator = hasattr(result, "__next__")
                    said = encode(list(itertools.islice(result, MAX_VALUES)) if is_iterator else result), is_iterator
        except BaseException as error:
            say("error", _text_of(error), _builtin_of(error))
        else:
            say("said", said)
    leave(0)


def _builtin_of(error: BaseException) -> str:
    return next(cls.__name__ for cls in type(error).__mro__ if cls.__module__ == "builtins")


def _test(program: _Program, request: dict[str, Any]) -> None:
    """Raise what the test raises, or the program, or that the task is not valid."""
    try:
        names = _load(request["reference"])
    except BaseException as error:
        raise _InvalidTaskError(_text_of(error)) from None
    function = program.load(request["code"])[request["entry_point"]]
    exec(compile(request["test"], "<string>", "exec", dont_inherit=True), names)
    names["check"](function)


class _Tests:
    """The tests of a program's functions, in order."""

    def __init__(self, program: _Program, text: str) -> None:
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise _InvalidTaskError(f"the tests cannot be parsed: {error}") from None
        self._program = program
        self._lines = text.splitlines()
        self._statements = tree.body
        self._functions = [
            node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test")
        ]
        self._names: dict[str, Any] = {"__name__": "tests"}
        _check_tests(tree, self._functions)

    def run(self, code: str, say: Callable[..., None]) -> None:
        """Run the tests and say the result of each."""
        titles = [self._lines[node.lineno - 1].strip() for node in self._statements if _is_test(node)]
        say("tests", [title[:_SHOWN_TITLE] for title in [*titles, *(node.name for node in self._functions)]])
        problem = self._problem(self._load, code)
        for node in self._statements:
            if _is_test(node):
                _say_result(say, problem or self._problem(self._check, node))
            elif problem is None:
                problem = self._problem(self._execute, node)
        for function in self._functions:
            _say_result(say, problem or self._problem(lambda name=function.name: self._names[name]()))

    def _load(self, code: str) -> None:
        loaded = {name: value for name, value in self._program.load(code).items() if name.isidentifier()}
        module = sys.modules["solution"] = ModuleType("solution")
        vars(module).update(loaded)
        # A program that defines `all` or `abs` must not decide what the tests mean by it.
        own = {name: value for name, value in loaded.items() if name[:2] != "__" and not hasattr(builtins, name)}
        self._names.update(own)

    def _check(self, node: ast.stmt) -> None:
        """Run a statement; a comparison that fails says what it found on its left side."""
        if not isinstance(node, ast.Assert) or not isinstance(node.test, ast.Compare) or len(node.test.ops) > 1:
            self._execute(node)
            return
        values = {"left": self._value(node.test.left), "right": self._value(node.test.comparators[0])}
        left, right = (ast.Name(name, ast.Load()) for name in values)
        comparison = ast.fix_missing_locations(ast.Expression(ast.Compare(left, node.test.ops, [right])))
        if not eval(compile(comparison, _TESTS, "eval"), values):
            said = "" if node.msg is None else f"{self._value(node.msg)}: "
            raise AssertionError(f"{said}{ast.unparse(node.test.left)} is {values['left']!r:.200}")

    def _execute(self, node: ast.stmt) -> None:
        exec(compile(ast.Module([node], []), _TESTS, "exec", dont_inherit=True), self._names)

    def _value(self, node: ast.expr) -> Any:
        return eval(compile(ast.Expression(node), _TESTS, "eval", dont_inherit=True), self._names)

    def _problem(self, run: Callable[..., Any], *arguments: Any) -> str | None:
        """Return why something failed; None if it did not.

        Raises:
            _InvalidTaskError: the tests are to blame, and not the program.
        """
        try:
            run(*arguments)
        except _InvalidTaskError:
            raise
        except ImportError as error:
            if error.name != "solution":
                raise _InvalidTaskError(f"the tests import what is not there: {error}") from None
            return str(error)
        except _ProgramEndedError:
            return "the program ended its process"
        except BaseException as error:
            kind = type(error).__name__
            text = _text_of(error) or (self._line_of(error) if isinstance(error, AssertionError) else "")
            if isinstance(error, _ProgramError):
                return f"the program ended with an exception: {text}"
            return f"{kind}: {text}" if text else kind
        return None

    def _line_of(self, error: BaseException) -> str:
        """Return the line of the tests that raised an error."""
        frames = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == _TESTS]
        return self._lines[frames[-1] - 1].strip() if frames else ""


def _check_tests(tree: ast.Module, functions: list[ast.FunctionDef]) -> None:
    """Check that there are tests, and that they call the program.

    Raises:
        _InvalidTaskError: it is not so.
    """
    if not functions and not any(map(_is_test, tree.body)):
        raise _InvalidTaskError("the tests have no assert, no call that stands alone and no function test_...")
    for function in functions:
        if _num_required(function.args):
            raise _InvalidTaskError(f"{function.name} takes arguments, and a test gets none")
    nodes = list(ast.walk(tree))
    read = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    written = {node.id for node in nodes if isinstance(node, ast.Name)} - read
    written |= {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    imported = {alias.asname or alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    imports = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    imported |= {alias.asname or alias.name for node in imports for alias in node.names}
    is_explicit = "solution" in imported or any(node.module == "solution" for node in imports)
    if not is_explicit and not read - written - imported - set(dir(builtins)):
        raise _InvalidTaskError("the tests call no function of the program; `from solution import NAME` names one")


def _is_test(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assert) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call))


def _num_required(arguments: ast.arguments) -> int:
    positional = len(arguments.posonlyargs) + len(arguments.args) - len(arguments.defaults)
    return positional + sum(default is None for default in arguments.kw_defaults)


def _say_result(say: Callable[..., None], problem: str | None) -> None:
    if problem is None:
        say("passed")
    else:
        say("failed", problem[:_SHOWN_PROBLEM])


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
