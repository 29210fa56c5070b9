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

import json
import os
import signal
import sys
import time
from types import FrameType
from typing import Any

from .program import ProgramEndedError, TestedProgram, UntestableError, detach, load, speaker, text_of
from .tests import TestsOfFunctions
from .values import decode, elements, encode

_EXACT = (type(None), bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset)


def main() -> None:
    program = TestedProgram() if sys.argv[1:] else None  # before it could see the request
    request = json.loads(sys.stdin.buffer.read())
    say, leave = speaker(open(os.dup(1), "w", encoding="ascii")), os._exit  # noqa: SIM115 - as long as the process
    detach()
    mark, given, function = request.pop("mark"), request.get("inputs", []), None
    try:
        if program is None:
            function = load(request["code"])[request["entry_point"]]
        elif sys.argv[1:] == ["--test"]:
            _test(program, request)
        else:
            TestsOfFunctions(program, request["tests"]).run(request["code"], say)
    except UntestableError as error:
        say("invalid", str(error))
    except ProgramEndedError:
        leave(0)  # there is nothing to say
    except BaseException as error:
        say("error", text_of(error))
    else:
        for arguments, limit_s in zip(given, request.get("limits_s", []), strict=True):
            say(*_call(function, arguments, limit_s))
        say("end", mark)
    leave(0)


def _test(program: TestedProgram, request: dict[str, Any]) -> None:
    """Raise what the test raises, or the program, or that the task is not valid."""
    try:
        names = load(request["reference"])
    except BaseException as error:
        raise UntestableError(text_of(error)) from None
    function = program.load(request["code"])[request["entry_point"]]
    exec(compile(request["test"], "<string>", "exec", dont_inherit=True), names)
    names["check"](function)


def _call(function: Any, arguments: Any, limit_s: float) -> list[Any]:
    began = time.monotonic()
    try:
        _alarm_after(limit_s)
        try:
            result = function(*decode(arguments))
            exact = type(result) in _EXACT
            return ["value", encode(result), exact, elements(result), time.monotonic() - began]
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
            raise TimeoutError
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
