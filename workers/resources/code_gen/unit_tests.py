"""Running a program against its unit tests, one sandbox for each."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pydantic
from gymq.workers.resources.code_gen.comparison import OutputRule, read_json

from gymq.processes import KillableProcesses
from gymq.sandbox import Limits, Program, ProgramResult, Sandbox, SandboxOptions

WRONG_OUTPUT, TIME_LIMIT, RUNTIME_ERROR = -2, -3, -4
MESSAGES = {WRONG_OUTPUT: "Wrong Answer", TIME_LIMIT: "Time Limit Exceeded", RUNTIME_ERROR: "Runtime Error"}

MEMORY_BYTES = 4 * 1024**3
# What a right answer may have: blanks, signs, zeros and digits that say nothing, many times what is expected.
OUTPUT_BYTES, OUTPUT_FACTOR = 64 * 1024, 16
SHORT_BYTES = 64 * 1024  # longer outputs are compared in a process, and the event loop is free meanwhile
COMPARISON_TIMEOUT_S = 300.0
SHOWN_CHARACTERS = 300

_HARNESS = (Path(__file__).parent / "harness.py").read_bytes()


class UnitTests(pydantic.BaseModel):
    """Inputs and the outputs they have to give."""

    inputs: list[str] = pydantic.Field(min_length=1)
    outputs: list[str]
    fn_name: str | None = None  # a function to call; without it programs read stdin

    @pydantic.model_validator(mode="after")
    def _check_lengths(self) -> UnitTests:
        if len(self.inputs) != len(self.outputs):
            raise ValueError(f"there are {len(self.inputs)} inputs, but {len(self.outputs)} outputs")
        return self


@dataclass(frozen=True)
class Outcome:
    """What the tests gave, up to the first that failed."""

    results: list[bool | int]
    metadata: dict[str, Any]
    seconds: float

    @property
    def passed(self) -> bool:
        return all(result is True for result in self.results)


class TestRun:
    """One program and its tests.

    Args:
        processes: for comparisons of long outputs.
        timeout_s: seconds for each test.
        rule: compares outputs.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        processes: KillableProcesses,
        options: SandboxOptions,
        rule: OutputRule,
        tests: UnitTests,
        timeout_s: float,
    ) -> None:
        self._sandbox = sandbox
        self._processes = processes
        self._options = options
        self._tests = tests
        self._timeout_s = timeout_s
        self._rule = rule

    async def outcome(self, code: str) -> Outcome:
        """Run test after test, up to the first that fails.

        Raises:
            ComponentFailed: nothing is known about the program.
            TimeoutError: a comparison of outputs did not end in time, which says nothing about them.
        """
        if not _is_json(self._tests):
            return Outcome([RUNTIME_ERROR], _metadata(RUNTIME_ERROR, error="a test is not JSON"), 0.0)
        began, computing_s = time.monotonic(), 0.0
        results: list[bool | int] = []
        for given, wanted in zip(self._tests.inputs, self._tests.outputs, strict=True):
            finished = await self._run(code, given, wanted)
            computing_s += finished.seconds
            failure = await self._failure(finished, wanted)
            if failure is None:
                results.append(True)
                continue
            results.append(False if failure == WRONG_OUTPUT and self._tests.fn_name else failure)
            metadata = _metadata(
                failure,
                inputs=given,
                expected=wanted,
                output=_text(finished.stdout),
                error=_reason(finished),
                traceback=_text(finished.stderr),
            )
            return Outcome(results, metadata, time.monotonic() - began)
        metadata = {"error_code": None, "execution_time": computing_s}
        return Outcome(results, metadata, time.monotonic() - began)

    async def _run(self, code: str, given: str, wanted: str) -> ProgramResult:
        limits = Limits(
            time_s=self._timeout_s,
            memory_bytes=MEMORY_BYTES,
            output_bytes=OUTPUT_BYTES + OUTPUT_FACTOR * len(wanted.encode(errors="replace")),
        )
        program = Program(
            (self._sandbox.python, "-I", "harness.py", *([self._tests.fn_name] if self._tests.fn_name else [])),
            stdin=given.encode(errors="replace"),
            files={"harness.py": _HARNESS, "solution.py": code.encode(errors="replace")},
        )
        return await self._sandbox.run(program, self._options.limits(limits))

    async def _failure(self, finished: ProgramResult, wanted: str) -> int | None:
        """Return the error of one test; None if it passed."""
        if finished.limit == "time":
            return TIME_LIMIT
        if finished.limit == "output":
            return WRONG_OUTPUT
        if finished.limit is not None or finished.exit_status != 0:
            return RUNTIME_ERROR
        texts = (finished.stdout, wanted)
        is_right, arguments = _is_value if self._tests.fn_name else _is_output, (self._rule, *texts)
        if max(map(len, texts)) <= SHORT_BYTES:
            right = is_right(*arguments)
        else:
            right = await self._processes.run(COMPARISON_TIMEOUT_S, is_right, *arguments)
        return None if right else WRONG_OUTPUT


def _is_json(tests: UnitTests) -> bool:
    """Return whether functions can be tested with them; programs that read stdin get any text."""
    if not tests.fn_name:
        return True
    try:
        for text in [*tests.outputs, *(line for given in tests.inputs for line in given.split("\n"))]:
            read_json(text)
    except (ValueError, RecursionError):
        return False
    return True


def _is_output(rule: OutputRule, output: bytes, wanted: str) -> bool:
    return rule.same_output(_text(output), wanted)


def _is_value(rule: OutputRule, output: bytes, wanted: str) -> bool:
    try:
        return rule.same_value(read_json(output), read_json(wanted))
    except (ValueError, RecursionError):
        return False


def _metadata(code: int, **texts: str) -> dict[str, Any]:
    shown = {
        name: text[-SHOWN_CHARACTERS:] if name == "traceback" else text[:SHOWN_CHARACTERS]
        for name, text in texts.items()
    }
    return {"error_code": code, "error_message": MESSAGES[code], **shown}


def _reason(finished: ProgramResult) -> str:
    if finished.limit is not None:
        return f"over the limit: {finished.limit}"
    return _text(finished.stderr).strip().rpartition("\n")[2]


def _text(data: bytes) -> str:
    return data.decode(errors="replace")
