"""math_with_code: problems with a Python tool that keeps its names; the boxed answer is compared."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pydantic
from gymq.workers.resources.math_with_judge.equivalence import boxed, check, limits
from gymq.workers.resources.math_with_judge.rules import as_meant
from gymq.workers.resources.mcqa import published

import gymq
from gymq.ext.text import boxes
from gymq.processes import CpuTimeUsedUp
from gymq.responses import conclusion
from gymq.sandbox import GIB, Limits, PythonSession
from gymq.sandboxed import SandboxedOptions

TOLERANCE = 1e-6  # relative for numbers above one, absolute below

_TEXT = re.compile(r"\\text\{(.*)\}", re.DOTALL)

TIMED_OUT = "code timed-out"
COMPARISON_S = 10.0  # of processor time for one comparison


class MathRow(gymq.Row):
    expected_result: str
    expected_code_contains: str = ""  # part of the row format, not used


class MathWithCode(gymq.SandboxedEnvironment[MathRow, PythonSession]):
    """Reward 1 if the boxed answer is the expected one, as text or as a number."""

    class Options(SandboxedOptions):
        max_execution_time: pydantic.PositiveInt = 10  # seconds for one call
        hardened: bool = True  # False: as texts, or as numbers with a tolerance

    reward_range = (0.0, 1.0)
    deterministic = True  # the answer is compared without the sandbox

    async def start(self) -> None:
        await super().start()
        self._limits = self.options.sandbox.limits(Limits(memory_bytes=4 * GIB))
        if self.options.hardened:
            self.compute_limits = limits(COMPARISON_S, os.cpu_count() or 1)
            self._last_box, self._is_same = last_box, self._same_answer
        else:
            self._last_box, self._is_same = published.last_box, self._published_same_answer

    async def open(self, row: gymq.Row) -> PythonSession:
        return PythonSession(self.sandbox, self._limits)

    async def open_unseeded(self) -> PythonSession:
        return PythonSession(self.sandbox, self._limits)

    async def close(self, state: PythonSession) -> None:
        await state.close()

    @gymq.tool
    async def execute_python(self, state: PythonSession, code: str) -> dict[str, Any]:
        """Run Python code. Names survive until the next call; the value of a last line that is an expression is
        returned. numpy, scipy and pandas are there."""
        step = await state.run(code, self.options.max_execution_time)
        return {
            "success": step.success,
            "stdout": step.stdout,
            "stderr": step.stderr,
            "error_message": TIMED_OUT if step.timed_out else step.error,
            "result": step.result,
        }

    @gymq.tool
    async def end_session(self, state: PythonSession) -> dict[str, Any]:
        """End the Python session; the next call starts with no names."""
        await state.close()
        return {"success": True, "stdout": "", "stderr": "", "error_message": None, "result": None}

    async def verify(self, request: gymq.VerifyRequest[MathRow, PythonSession]) -> gymq.Verdict:
        state = request.state
        answer = find_answer(request.response["output"], self._last_box)
        accuracy = answer is not None and await self._is_same(answer, request.row.expected_result)
        if state is not None:
            await state.close()
        return gymq.Verdict(float(accuracy), extracted_answer=answer, accuracy=accuracy)

    async def _same_answer(self, answer: str, expected: str) -> bool:
        if normalised(answer) == normalised(expected):
            return True
        try:
            return (await self.compute(check, as_meant, expected, boxed(answer))).reward == 1.0
        except CpuTimeUsedUp:
            return False

    async def _published_same_answer(self, answer: str, expected: str) -> bool:
        return published_same_answer(answer, expected)


def find_answer(output: Sequence[Mapping[str, Any]], last_box: Callable[[str], str | None]) -> str | None:
    """Return the last box of the last message that has one; otherwise of the last tool output that printed one."""
    for item in reversed(output):
        if item.get("type") == "message" and item.get("role") == "assistant":
            answer = (last_box(_message_text(item)) or "").strip()
            if answer:
                return answer
    for item in reversed(output):
        if item.get("type") == "function_call_output":
            answer = (last_box(_printed(item.get("output"))) or "").strip()
            if answer:
                return answer
    return None


def last_box(reply: str) -> str | None:
    """Return what stands in the last box that ends, behind thoughts; None without one."""
    found = boxes(conclusion(reply))
    return found[-1].text if found else None


def published_same_answer(answer: str, expected: str) -> bool:
    """Equal after light normalisation, or equal as numbers within the tolerance."""
    ours, theirs = normalised(answer), normalised(expected)
    if ours == theirs:
        return True
    try:
        actual, wanted = float(ours), float(theirs)
    except ValueError:
        return False
    return abs(actual - wanted) < TOLERANCE * max(1.0, abs(wanted))


def normalised(text: str) -> str:
    """Without delimiters of formulas and `\\text{}` around it, and with single blanks."""
    text = text.strip()
    if text.startswith("\\(") and text.endswith("\\)"):
        text = text[2:-2].strip()
    if len(text) > 1 and text.startswith("$") and text.endswith("$"):
        text = text[1:-1].strip()
    inner = _TEXT.fullmatch(text)
    if inner:
        text = inner[1]
    return " ".join(text.split())


def _message_text(item: dict[str, Any]) -> str:
    content = item.get("content")
    if isinstance(content, str):
        return content
    return "".join(part["text"] for part in content or [] if part.get("type") == "output_text")


def _printed(output: Any) -> str:
    """Return the printed text of a tool, if its output has it separately; otherwise all of the output."""
    if not isinstance(output, str):
        return ""
    try:
        parsed = json.loads(output)
    except (ValueError, RecursionError):
        return output
    if not isinstance(parsed, dict):
        return output
    stdout = parsed.get("stdout")
    return stdout if isinstance(stdout, str) else ""
