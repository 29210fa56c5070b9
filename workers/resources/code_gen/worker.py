"""code_gen: the reply's program has to pass unit tests, each in its own sandbox."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pydantic
from gymq.workers.resources.code_gen.comparison import ByNumbers, Published
from gymq.workers.resources.code_gen.unit_tests import Outcome, TestRun, UnitTests

import gymq
from gymq.authoring import first_problem
from gymq.ext.text import code_blocks
from gymq.responses import output_text
from gymq.sandboxed import SandboxedOptions

_FENCE = "```"
_TAGS = ("<think>", "</think>")


class CodeRow(gymq.Row):
    verifier_metadata: dict[str, Any] | None = None  # `unit_tests` and `difficulty`


class CodeGen(gymq.SandboxedEnvironment[CodeRow]):
    """Reward 1 if the reply's program passes all unit tests."""

    class Options(SandboxedOptions):
        num_processes: pydantic.PositiveInt = 8
        unit_test_timeout_secs: pydantic.PositiveFloat = 10.0
        debug: bool = False
        reasoning_format_penalty: pydantic.FiniteFloat = 0.0
        hardened: bool = True  # false: floats and whole numbers are compared as the peer does

    reward_range = (0.0, 1.0)  # unless the penalty is outside

    async def start(self) -> None:
        rewards = (0.0, 1.0, self.options.reasoning_format_penalty)
        self.reward_range = (min(rewards), max(rewards))
        await super().start()
        self._rule = ByNumbers() if self.options.hardened else Published()
        self._program = last_block if self.options.hardened else published_program
        self._slots = asyncio.Semaphore(self.options.num_processes)

    async def verify(self, request: gymq.VerifyRequest[CodeRow]) -> gymq.Verdict:
        text, metadata = request.reply_text, request.row.verifier_metadata or {}
        difficulty = metadata.get("difficulty")
        if not text.strip():
            return _verdict(0.0, difficulty)
        tests = read_tests(metadata)
        code = self._program(text)
        if not code:
            return _verdict(0.0, difficulty, extracted_model_output=text)
        options = self.options
        run = TestRun(self.sandbox, self.processes, options.sandbox, self._rule, tests, options.unit_test_timeout_secs)
        async with self._slots:
            outcome = await run.outcome(code)
        misused = misuses_think_tags(request.response)
        reward = self.options.reasoning_format_penalty if misused else float(outcome.passed)
        return _verdict(
            reward,
            difficulty,
            extracted_model_output=text,
            extracted_model_code=code,
            outcome=outcome,
            violation_rate=float(misused),
        )


def read_tests(metadata: dict[str, Any]) -> UnitTests:
    """Return the unit tests of a row.

    Raises:
        InvalidTask: there are none, or they are no tests.
    """
    try:
        return UnitTests.model_validate(metadata.get("unit_tests"))
    except pydantic.ValidationError as error:
        raise gymq.InvalidTask(f"row does not fit: verifier_metadata.unit_tests: {first_problem(error)}") from None


def _verdict(
    reward: float,
    difficulty: Any,
    *,
    extracted_model_output: str | None = None,
    extracted_model_code: str | None = None,
    outcome: Outcome | None = None,
    violation_rate: float = 0.0,
) -> gymq.Verdict:
    return gymq.Verdict(
        reward,
        extracted_model_output=extracted_model_output,
        extracted_model_code=extracted_model_code,
        result=outcome and outcome.results,
        metadata=outcome and outcome.metadata,
        unit_tests_time_taken=outcome and outcome.seconds,
        reasoning_format_violation_rate=violation_rate,
        difficulty=difficulty,
    )


def last_block(reply: str) -> str:
    """Return the last fenced block that is closed, whatever its tag, one of lines before others; empty without any."""
    closed = [block for block in code_blocks(reply) if block.is_closed]
    with_lines = [block for block in closed if "\n" in block.text] or closed
    return with_lines[-1].lines if with_lines else ""


def published_program(text: str) -> str:
    """Return the lines between the last two lines that hold a fence; empty with less than two of them."""
    lines = text.split("\n")
    fences = [number for number, line in enumerate(lines) if _FENCE in line]
    if len(fences) < 2:
        return ""
    return "\n".join(lines[fences[-2] + 1 : fences[-1]])


def misuses_think_tags(response: Mapping[str, Any]) -> bool:
    """Return whether a think tag stands in the text, or more than once in the summaries of the reasoning."""
    text = output_text(response)
    summaries = "".join(
        part.get("text") or ""
        for item in response["output"]
        if item.get("type") == "reasoning"
        for part in item.get("summary") or []
    )
    return any(tag in text or summaries.count(tag) > 1 for tag in _TAGS)
