"""evalplus: a Python function has to pass the tests of HumanEval+ or MBPP+, the base tests and the extra ones."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pydantic
from gymq.workers.resources.evalplus.comparison import Dataset, passed_tests
from gymq.workers.resources.evalplus.references import References, Tests
from gymq.workers.resources.evalplus.tasks import Task, find_file, read_tasks

import gymq
from gymq.ext.functions import Runner
from gymq.processes import ComputeLimits, CpuTimeUsedUp
from gymq.sandboxed import SandboxedOptions

FILES = {"humaneval": "HumanEvalPlus", "mbpp": "MbppPlus"}

LONGEST_RUN_S = 60.0
GRACE_S = 3.0  # two seconds for what is not a test, and one for the process to end
# What a right answer may have: results of other types and sizes than expected are wrong, and need no more room.
OUTPUT_BYTES, OUTPUT_FACTOR = 64 * 1024, 16
SHORT_BYTES = 16 * 1024


class FunctionRow(gymq.Row):
    verifier_metadata: dict[str, Any] | None = None  # `task_id`


class EvalPlus(gymq.SandboxedEnvironment[FunctionRow]):
    """Reward 1 if the reply's function passes the base tests and the extra tests of its task."""

    class Options(SandboxedOptions):
        dataset: Dataset
        num_processes: pydantic.PositiveInt = 8
        min_time_limit: pydantic.PositiveFloat = 1.0
        gt_time_limit_factor: pydantic.PositiveFloat = 4.0
        evalplus_version: str = "default"
        problems: Path | None = None  # the task set; default: the published one, in `data`

    reward_range = (0.0, 1.0)
    compute_limits = ComputeLimits(cpu_s=20.0, timeout_s=400.0, max_memory_bytes=4 * 1024**3)

    async def start(self) -> None:
        options = self.options
        version = "" if options.evalplus_version == "default" else f"-{options.evalplus_version}"
        path = find_file(options.problems, f"{FILES[options.dataset]}{version}.jsonl", Path(__file__).parent)
        self._tasks = await asyncio.to_thread(read_tasks, path, Task)
        await super().start()
        self._runner = Runner(self.sandbox, options.sandbox)
        self._references = References(self._runner, options.dataset)
        self._slots = asyncio.Semaphore(options.num_processes)

    async def verify(self, request: gymq.VerifyRequest[FunctionRow]) -> gymq.Verdict:
        task_id = (request.row.verifier_metadata or {}).get("task_id")
        if not task_id:
            return _verdict(metadata={"error": "the row has no verifier_metadata.task_id"})
        task = self._tasks.get(task_id) if isinstance(task_id, str) else None
        if task is None:
            return _verdict(metadata={"error": f"the task set has no task {task_id!r:.200}"})
        text = request.reply_text
        if not text.strip():
            return _verdict()
        code = (last_python_block(text.replace("\r", "")) or "").strip()
        if not code:
            return _verdict(extracted_model_output=text)
        async with self._slots:
            tests = await self._references.of(task)
            program = code if code.startswith(task.prompt) else task.prompt + code
            (base, base_details), (plus, plus_details) = await asyncio.gather(
                self._outcome(task, tests.base, program), self._outcome(task, tests.plus, program)
            )
        correct, correct_plus = base == "pass", base == plus == "pass"
        return _verdict(
            float(correct_plus),
            extracted_model_output=text,
            extracted_model_code=code,
            base_status=base,
            plus_status=plus,
            is_correct=correct,
            is_correct_plus=correct_plus,
            metadata={"base_details": base_details, "plus_details": plus_details},
        )

    async def _outcome(self, task: Task, tests: Tests, program: str) -> tuple[str, list[int]]:
        """Run one set of tests; the status, and 1 or 0 for each test that was reached."""
        options = self.options
        limits_s = [max(options.min_time_limit, options.gt_time_limit_factor * seconds) for seconds in tests.seconds]
        room = OUTPUT_BYTES + OUTPUT_FACTOR * sum(map(len, tests.expected))
        time_s = min(LONGEST_RUN_S, sum(limits_s)) + GRACE_S
        run = await self._runner.call(program, task.entry_point, tests.inputs, limits_s, time_s, room)
        details = await self._details(task, tests, run.lines)
        if run.error is not None or run.overflowed:
            return "fail", details
        if not run.ended:
            return "timeout", details
        return "pass" if len(details) == len(tests.inputs) and all(details) else "fail", details

    async def _details(self, task: Task, tests: Tests, lines: list[bytes]) -> list[int]:
        """Compare results; many or long ones in a process, and the event loop is free meanwhile."""
        rules = (self.options.dataset, task.entry_point, task.atol)
        if sum(map(len, [*tests.expected, *lines])) <= SHORT_BYTES:
            return passed_tests(*rules, tests.inputs, tests.expected, lines)
        try:
            return await self.compute(passed_tests, *rules, tests.inputs, tests.expected, lines)
        except (CpuTimeUsedUp, MemoryError):
            return [0] * min(len(lines), len(tests.inputs))


def last_python_block(text: str) -> str | None:
    """Return what follows the last opening fence for Python up to the next three backticks, as it stands there.

    Args:
        text: a reply without carriage returns.

    Returns:
        None if there is no such fence, or it is not closed, or nothing stands between.
    """
    _, opening, rest = text.rpartition("```python")
    code, closing, _ = rest.partition("```")
    return code if opening and closing and code else None


def _verdict(reward: float = 0.0, **found: Any) -> gymq.Verdict:
    """Return a verdict with the fields that every result has."""
    texts = ("extracted_model_output", "extracted_model_code", "base_status", "plus_status", "metadata")
    return gymq.Verdict(reward, **dict.fromkeys(texts) | {"is_correct": False, "is_correct_plus": False} | found)
