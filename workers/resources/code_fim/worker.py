"""code_fim: the reply fills in the missing part of a Python function, which then has to pass its tests."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Literal

import pydantic
from gymq.workers.resources.evalplus.tasks import BaseTask, find_file, read_tasks
from gymq.workers.resources.evalplus.worker import FunctionRow, last_python_block

import gymq
from gymq.ext.functions import Runner
from gymq.sandboxed import SandboxedOptions

_END_OF_THOUGHTS = "</think>"

FILES = {
    "single_line": "HumanEval-SingleLineInfilling.jsonl",
    "multi_line": "HumanEval-MultiLineInfilling.jsonl",
    "random_span": "HumanEval-RandomSpanInfilling.jsonl",
    "random_span_light": "HumanEval-RandomSpanInfillingLight.jsonl",
}


class Gap(BaseTask):
    """One function with a missing part."""

    prompt: str  # the text before it
    suffix: str
    canonical_solution: str  # the missing part
    test: str  # defines `check(candidate)`
    entry_point: str

    def program(self, completion: str) -> str:
        """Return the function."""
        return f"{self.prompt}{completion}{self.suffix}"


class CodeFim(gymq.SandboxedEnvironment[FunctionRow]):
    """Reward 1 if the function passes its tests with the part that the reply fills in."""

    class Options(SandboxedOptions):
        split: Literal["single_line", "multi_line", "random_span", "random_span_light"] = "random_span"
        num_processes: pydantic.PositiveInt = 8
        timeout: pydantic.PositiveFloat = 3.0
        problems: Path | None = None  # the task set; default: the published one, in `data`

    reward_range = (0.0, 1.0)

    async def start(self) -> None:
        options = self.options
        path = find_file(options.problems, FILES[options.split], Path(__file__).parent)
        self._gaps = await asyncio.to_thread(read_tasks, path, Gap)
        await super().start()
        self._runner = Runner(self.sandbox, options.sandbox)
        self._slots = asyncio.Semaphore(options.num_processes)

    async def verify(self, request: gymq.VerifyRequest[FunctionRow]) -> gymq.Verdict:
        task_id = (request.row.verifier_metadata or {}).get("task_id")
        if not task_id:
            return _verdict(metadata={"error": "the row has no verifier_metadata.task_id"})
        gap = self._gaps.get(task_id) if isinstance(task_id, str) else None
        if gap is None:
            return _verdict(metadata={"error": f"the task set has no task {task_id!r:.200}"})
        text = request.reply_text
        if not text:
            return _verdict()
        code = extract_code(text)
        if code is None:
            return _verdict(extracted_model_output=text)
        completion = completion_of(code, gap.prompt, gap.suffix)
        status = await self._status(gap, completion)
        return _verdict(extracted_model_output=text, extracted_model_code=code, completion=completion, status=status)

    async def _status(self, gap: Gap, completion: str) -> str:
        async with self._slots:
            program = gap.program(completion)
            reference = gap.program(gap.canonical_solution)
            run = await self._runner.check(program, gap.entry_point, gap.test, reference, self.options.timeout)
        if run.error is not None:
            return f"failed: {run.error}"
        return "passed" if run.ended else "timed out"


def _verdict(status: str | None = None, **found: Any) -> gymq.Verdict:
    """Return a verdict with the fields that every result has."""
    always = dict.fromkeys(("extracted_model_output", "extracted_model_code", "completion", "metadata"))
    passed = status == "passed"
    return gymq.Verdict(float(passed), status=status, passed=passed, **always | found)


def extract_code(text: str) -> str | None:
    """Return the last block of Python in a reply as it is, since its indentation counts; None if there is none."""
    text = text.replace("\r", "")
    _, end, answer = text.partition(_END_OF_THOUGHTS)
    return last_python_block(answer if end else text)


def completion_of(code: str, prefix: str, suffix: str) -> str:
    """Return the code without its first line feed, the end of the prefix and the beginning of the suffix."""
    completion = code.removeprefix("\n")
    completion = completion[_overlap(prefix, completion) :]
    return completion[: len(completion) - _overlap(completion, suffix)]


def _overlap(text: str, following: str) -> int:
    """Return the length of the longest end of a text with which another begins. Blanks without a line feed are none."""
    for length in range(min(len(text), len(following)), 0, -1):
        common = following[:length]
        if text.endswith(common) and (not common.isspace() or "\n" in common):
            return length
    return 0
