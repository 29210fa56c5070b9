"""Runs one test of a program. It lies beside the program, inside the sandbox: `harness.py [FUNCTION]`.

Without a function the program reads its test from stdin. With one, each line of stdin is an argument as JSON, and the
result goes to the original stdout as JSON, whatever the program prints. What the program writes to stderr goes nowhere:
it says nothing about the answer, and must not use up the room for it. The traceback that ends a program goes to the
original stderr.
"""

import ast
import json
import os
import resource
import sys
import traceback
from typing import Any, SupportsFloat

_IMPORTED = [
    *("string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random", "statistics"),
    *("itertools", "functools", "operator", "io", "sys", "json", "builtins", "typing"),
]
_MODULES = "\n".join(
    [f"from {name} import *" for name in _IMPORTED] + [f"import {name}" for name in [*_IMPORTED, "os", "queue", "time"]]
)
_STACK_BYTES = 100 * 1024**2  # deep recursion, with room to spare below the 128 MiB that Linux keeps free
_FAILED = 1
_SHOWN_CHARACTERS = 10_000


def main(function_name: str | None) -> None:
    sys.setrecursionlimit(50_000)
    sys.set_int_max_str_digits(0)
    hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
    resource.setrlimit(resource.RLIMIT_STACK, (_STACK_BYTES if hard == -1 else min(_STACK_BYTES, hard), hard))
    with open("solution.py", encoding="utf-8") as file:
        code = file.read()
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 2)
    if function_name is None:
        _execute(code, "__main__")
        return
    answers = os.dup(1)
    arguments = [json.loads(line) for line in sys.stdin.read().split("\n")]
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    names = _execute(code, "solution")
    is_class = any(isinstance(one, ast.ClassDef) and one.name == "Solution" for one in ast.parse(code).body)
    function = getattr(names["Solution"](), function_name) if is_class else names[function_name]
    result = function(*arguments)
    with open(answers, "w") as file:
        file.write(_json(result))


def _execute(code: str, name: str) -> dict[str, Any]:
    names = {"__name__": name}
    exec(_MODULES, names)
    exec(compile(code, "solution.py", "exec", dont_inherit=True), names)
    return names


def _json(result: object) -> str:
    """Return a result as JSON. A value without a JSON form, such as a set, is a wrong answer and not an error."""
    try:
        return json.dumps(list(result) if isinstance(result, tuple) else result, default=_number)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return ""


def _number(value: SupportsFloat) -> float:
    """Numbers of other libraries as plain ones."""
    return float(value)


def _run() -> None:
    said = os.dup(2)
    try:
        main(sys.argv[1] if len(sys.argv) > 1 else None)
        sys.stdout.flush()
    except SystemExit:
        sys.stdout.flush()
    except BaseException:
        os.write(said, traceback.format_exc()[-_SHOWN_CHARACTERS:].encode(errors="replace"))
        os._exit(_FAILED)


if __name__ == "__main__":
    _run()
