"""A Python interpreter that runs one piece of code after another and keeps its names. It runs inside a sandbox.

Messages on stdin and stdout are four bytes of length, a number of eight bytes that the answer repeats, and JSON. A
request is `{"code", "timeout_s"}`, where no timeout means that another process sends SIGALRM, an answer
`{"success", "stdout", "stderr", "error", "traceback", "result", "shown", "timed_out"}`. Only the standard library is
used.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import importlib
import json
import os
import re
import signal
import sys
import tempfile
import traceback
from types import FrameType
from typing import Any, NoReturn

MAX_TEXT = 100_000  # characters of each text in an answer
# Names that are there without an import, as soon as code mentions them.
LIBRARIES = {"np": "numpy", "numpy": "numpy", "pd": "pandas", "pandas": "pandas", "scipy": "scipy", "math": "math"}

NAMES: dict[str, Any] = {"__name__": "__main__", "__builtins__": builtins}


class OutOfTime(BaseException):
    """No `Exception`, so that few programs catch it."""


def main() -> None:
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # a program that reads its input finds the end
    streams = [_Captured("stdout", 1), _Captured("stderr", 2)]
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    itself = os.getpid()
    while head := requests.read(4 + 8):
        number, request = head[4:], json.loads(requests.read(int.from_bytes(head[:4], "big")))
        answer = _run(request["code"], request["timeout_s"])
        if os.getpid() != itself:  # code forked, and this is the child at its end
            _leave()
        answer["stdout"], answer["stderr"] = (stream.taken() for stream in streams)
        body = json.dumps({name: _bounded(value) for name, value in answer.items()}).encode()
        answers.write(len(body).to_bytes(4, "big") + number + body)
        answers.flush()


def _run(code: str, timeout_s: float | None) -> dict[str, Any]:
    answer: dict[str, Any] = {"success": False, "timed_out": False}
    answer |= dict.fromkeys(("error", "traceback", "result", "shown"))
    try:
        signal.signal(signal.SIGALRM, _on_alarm)
        signal.setitimer(signal.ITIMER_REAL, timeout_s or 0)
        try:
            value, is_last_line = _execute(code)
            answer["result"] = str(value) if is_last_line else None
            answer["shown"] = None if value is None else repr(value)
            answer["success"] = True
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, signal.SIG_IGN)
    except OutOfTime:
        answer["timed_out"] = True
        answer["error"] = "out of time"
    except BaseException as error:
        answer["error"] = _text_of(error)
        answer["traceback"] = _traceback_of(error)
    return answer


def _execute(code: str) -> tuple[Any, bool]:
    """Run the code; the value of its last statement if that is an expression, and whether it is all of a last line."""
    tree = ast.parse(code, "<string>")
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = tree.body[-1].value
        del tree.body[-1]
    _offer_libraries(code)
    exec(compile(tree, "<string>", "exec"), NAMES)
    if last is None:
        return None, False
    return eval(compile(ast.Expression(last), "<string>", "eval"), NAMES), _is_last_line(last, code)


def _is_last_line(expression: ast.expr, code: str) -> bool:
    """Return whether the last line is the expression. A `print(...)` is for its output, not for its value."""
    lines = code.rstrip().split("\n")
    if expression.lineno != len(lines):
        return False
    try:
        line = ast.parse(lines[-1], mode="eval").body
    except SyntaxError:
        return False
    return not (isinstance(line, ast.Call) and isinstance(line.func, ast.Name) and line.func.id == "print")


def _offer_libraries(code: str) -> None:
    for name in set(re.findall(r"[A-Za-z_]\w*", code)) & LIBRARIES.keys() - NAMES.keys():
        try:
            NAMES[name] = importlib.import_module(LIBRARIES[name])
        except ImportError:
            continue  # the code will find that the name is missing


class _Captured:
    """One of the streams of this process and of all it starts, collected in a file."""

    def __init__(self, name: str, fd: int) -> None:
        self._name = name
        self._fd = fd
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        os.dup2(self._file.fileno(), fd)
        self._renew()

    def taken(self) -> str:
        """Return what was written since the last time."""
        with contextlib.suppress(Exception):  # whatever code did to the stream
            getattr(sys, self._name).flush()
        self._file.seek(0)
        text = self._file.read(MAX_TEXT * 4).decode("utf-8", "replace")
        os.ftruncate(self._file.fileno(), 0)
        self._file.seek(0)
        self._renew()
        return text

    def _renew(self) -> None:
        stream = open(self._fd, "w", encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
        setattr(sys, self._name, stream)


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return type(error).__name__


def _traceback_of(error: BaseException) -> str:
    """Format a traceback without the frames of this file."""
    while error.__traceback__ is not None and error.__traceback__.tb_frame.f_code.co_filename == __file__:
        error.__traceback__ = error.__traceback__.tb_next
    return "".join(traceback.format_exception(error))


def _bounded(value: Any) -> Any:
    return value[:MAX_TEXT].encode("utf-8", "replace").decode() if isinstance(value, str) else value


def _on_alarm(_number: int, _frame: FrameType | None) -> None:
    raise OutOfTime


def _leave() -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
