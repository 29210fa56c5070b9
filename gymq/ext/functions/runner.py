"""Running a program in a sandbox, and calling its functions there."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gymq.failures import InvalidTask
from gymq.sandbox.interface import GIB, Limits, Program, ProgramResult, Sandbox
from gymq.sandbox.options import SandboxOptions

MEMORY_BYTES = 4 * GIB

_HARNESS = {f"harness/{path.name}": path.read_bytes() for path in (Path(__file__).parent / "harness").glob("*.py")}
_START = "import sys; sys.path.append('.'); from harness.main import main; sys.path.pop(); main()"


async def run_harness(
    sandbox: Sandbox, limits: Limits, request: dict[str, Any], *arguments: str
) -> tuple[str, ProgramResult]:
    """Run the harness, as its docstring describes it.

    Args:
        request: without its mark; `code` may have any characters.

    Returns:
        The mark that only the harness can print, and what it printed.

    Raises:
        ComponentFailed: nothing is known about the program.
    """
    mark = secrets.token_hex(16)
    code = request["code"].encode(errors="replace").decode()
    program = Program(
        (sandbox.python, "-I", "-B", "-c", _START, *arguments),
        stdin=json.dumps(request | {"code": code, "mark": mark}).encode(),
        files=_HARNESS,
    )
    return mark, await sandbox.run(program, limits)


@dataclass(frozen=True)
class FunctionRun:
    """What is known of a program after it ran.

    Attributes:
        lines: what the harness answered, one line of JSON for each call.
        error: text of the exception that ended loading or the test; None: there was none, or the process died.
        ended: whether the process came to its end by itself, rather than being killed or dying.
        overflowed: whether it was killed because of the size of its results.
    """

    lines: list[bytes]
    error: str | None
    ended: bool
    overflowed: bool = False


class Runner:
    """Runs programs in a worker's sandbox."""

    def __init__(self, sandbox: Sandbox, options: SandboxOptions) -> None:
        self._sandbox = sandbox
        self._options = options

    async def check(self, code: str, entry_point: str, test: str, reference: str, time_s: float) -> FunctionRun:
        """Load a program and check its function.

        Args:
            test: code that defines `check(candidate)`, after the names of the reference.
            reference: a program that is right.

        Raises:
            InvalidTask: the reference cannot be loaded, or an argument is not of a plain type.
            ComponentFailed: nothing is known about the program.
        """
        request = {"code": code, "entry_point": entry_point, "test": test, "reference": reference}
        return await self._run(request, time_s, 0, "--test")

    async def call(
        self,
        code: str,
        entry_point: str,
        inputs: Sequence[Any],
        limits_s: Sequence[float],
        time_s: float,
        output_bytes: int,
    ) -> FunctionRun:
        """Load a program and call its function with each of the inputs.

        Args:
            inputs: encoded argument lists.
            limits_s: seconds for each call, after which it fails.
            time_s: seconds after which the program is killed.
            output_bytes: room for the results.

        Raises:
            ComponentFailed: nothing is known about the program.
        """
        request = {"code": code, "entry_point": entry_point, "inputs": inputs, "limits_s": limits_s}
        return await self._run(request, time_s, output_bytes)

    async def _run(self, request: dict[str, Any], time_s: float, output_bytes: int, *arguments: str) -> FunctionRun:
        limits = Limits(time_s=time_s, memory_bytes=MEMORY_BYTES, output_bytes=output_bytes + 64 * 1024)
        mark, finished = await run_harness(self._sandbox, self._options.limits(limits), request, *arguments)
        *lines, last = finished.stdout.rstrip(b"\n").split(b"\n")
        match parsed(last):
            case ["end", str(said)] if said == mark:
                return FunctionRun(lines, None, ended=True)
            case ["error", str(text)] if not lines:
                return FunctionRun([], text, ended=True)
            case ["invalid", str(text)] if arguments:
                raise InvalidTask(f"the task cannot be tested: {text}")
        complete = finished.stdout.split(b"\n")[:-1]
        return FunctionRun(complete, None, ended=False, overflowed=finished.limit == "output")


def parsed(line: bytes) -> Any:
    """Return the value of a line of JSON; None if it is none."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
