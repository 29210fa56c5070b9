"""The program under test in a process of its own, and what it shares with that of the tests."""

from __future__ import annotations

import builtins
import ctypes
import io
import itertools
import json
import os
import sys
import tempfile
from collections.abc import Callable
from types import ModuleType
from typing import IO, Any, NoReturn

from .values import MAX_VALUES, UNKNOWN, decode, encode

_PR_SET_DUMPABLE = 4


class UntestableError(Exception):
    """The reference cannot be loaded, or the test passes what cannot be handed to another process."""


class ProgramError(Exception):
    """The program under test raised what is no `Exception`, such as SystemExit; the text is that of it."""


class ProgramEndedError(BaseException):
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


class TestedProgram:
    """A program in a process of its own, forked from one that has read nothing yet and cannot be looked into."""

    def __init__(self) -> None:
        requests, answers = os.pipe(), os.pipe()
        theirs, ours = (requests[0], answers[1]), (requests[1], answers[0])
        is_program = os.fork() == 0
        for fd in ours if is_program else theirs:
            os.close(fd)
        if is_program:
            _serve(os.fdopen(requests[0]), speaker(os.fdopen(answers[1], "w")))
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
        raise ProgramEndedError


def _serve(requests: IO[str], say: Callable[..., None]) -> NoReturn:
    """Load a program and call its functions, as often as asked."""
    leave = os._exit
    names: dict[str, Any] = {}
    said: Any
    detach()
    for line in requests:
        try:
            match json.loads(line):
                case ["load", code]:
                    names = load(code)
                    functions = [name for name, value in names.items() if callable(value)]
                    others = {name: encode(names[name]) for name in names.keys() - functions if name[:2] != "__"}
                    said = functions, {name: form for name, form in others.items() if form != UNKNOWN}
                case [_, name, arguments, named]:
                    result = names[name](*decode(arguments), **decode(named))
                    is_iterator = hasattr(result, "__next__")
                    said = encode(list(itertools.islice(result, MAX_VALUES)) if is_iterator else result), is_iterator
        except BaseException as error:
            say("error", text_of(error), _builtin_of(error))
        else:
            say("said", said)
    leave(0)


def speaker(file: IO[str]) -> Callable[..., None]:
    """Return what writes a line of JSON."""
    itself, leave = os.getpid(), os._exit

    def say(*words: Any) -> None:
        if os.getpid() != itself:  # the program forked, and this is the child
            leave(0)
        file.write(json.dumps(words) + "\n")
        file.flush()

    return say


def detach() -> None:
    """Print to nowhere from now on, read nothing, and work in an empty folder."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(nothing, fd)
    sys.stdin = _NoInput()
    os.chdir(tempfile.mkdtemp())


def load(code: str) -> dict[str, Any]:
    module = sys.modules["solution"] = ModuleType("solution")
    exec(compile(code, "<string>", "exec", dont_inherit=True), module.__dict__)
    return module.__dict__


def text_of(error: BaseException) -> str:
    try:
        return str(error)[:10_000]
    except Exception:
        return type(error).__name__


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
    return ProgramError(text)


def _plain(arguments: Any) -> Any:
    form = encode(arguments)
    try:
        decode(form)
    except ValueError:
        raise UntestableError("the test passes an argument of another than a plain type") from None
    return form


def _builtin_of(error: BaseException) -> str:
    return next(cls.__name__ for cls in type(error).__mro__ if cls.__module__ == "builtins")
