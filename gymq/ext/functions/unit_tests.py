"""Unit tests of a function that a model wrote. The tests and what they expect stay outside of the program's process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gymq.ext.functions.runner import parsed, run_harness
from gymq.ext.text import code_blocks
from gymq.failures import ComponentFailed, InvalidTask
from gymq.sandbox.interface import Limits, ProgramResult, Sandbox


@dataclass(frozen=True)
class UnitTest:
    """The result of one test.

    Attributes:
        name: its line, or the name of its function.
        problem: why it failed; empty if it passed.
    """

    name: str
    passed: bool
    problem: str = ""


@dataclass(frozen=True)
class UnitTests:
    """The results of all tests, in order."""

    tests: list[UnitTest]

    @property
    def num_passed(self) -> int:
        """Return how many passed."""
        return sum(test.passed for test in self.tests)

    @property
    def passed(self) -> bool:
        """Return whether all passed."""
        return self.num_passed == len(self.tests)

    @property
    def fields(self) -> dict[str, Any]:
        """Return fields for a verdict; a row is likely to have a field `tests` of its own."""
        return {
            "test_results": {test.name: test.passed for test in self.tests},
            "test_problems": {test.name: test.problem for test in self.tests if test.problem},
            "tests_passed": self.num_passed,
        }


async def run_tests(sandbox: Sandbox, code: str, tests: str | Sequence[str], limits: Limits | None = None) -> UnitTests:
    """Run unit tests of the functions of a program.

    The tests call functions by their names, or import them from `solution`. Each `assert`, each call that stands alone
    and each function `test_...` is a test; each other statement prepares for those below it. Arguments and results are
    copied between the tests and the program, so they are of plain types: numbers, texts, lists, dicts, sets and such.

    Args:
        sandbox: where the program runs.
        code: the program, or a reply with the program in its last block of code.
        tests: the tests, as one text or several.
        limits: of the program with all its tests; default: those of `Limits`.

    Raises:
        InvalidTask: the tests cannot be run, whatever the program is.
        ComponentFailed: the sandbox did not run them.
    """
    text = tests if isinstance(tests, str) else "\n".join(tests)
    request = {"code": program_in(code), "tests": text}
    mark, finished = await run_harness(sandbox, limits or Limits(), request, "--tests")
    lines = [parsed(line) for line in finished.stdout.splitlines()]
    match lines:
        case [] | [None, *_]:  # the program is not loaded before the tests are named
            raise ComponentFailed(f"the process that runs tests {finished.report}")
        case [["invalid", str(problem)]] | [["tests", _], *_, ["invalid", str(problem)]]:
            raise InvalidTask(f"the tests cannot be run: {problem}")
        case [["tests", list(names)], *results]:
            return UnitTests(_results(names, results, mark, finished))
    raise ComponentFailed(f"the process that runs tests printed something else: {finished.last_words}")


def _results(names: list[str], lines: list[Any], mark: str, finished: ProgramResult) -> list[UnitTest]:
    """Return the results; of a process that did not come to its end those that it gave, and the others failed."""
    problems: list[str] = []
    rest = f"not reached: the process {finished.how}"
    for line in lines:
        match line:
            case ["passed"]:
                problems.append("")
            case ["failed", str(problem)]:
                problems.append(problem)
            case ["error", str(problem)]:
                rest = problem
    if lines[-1:] != [["end", mark]]:
        problems = problems[: len(names) - 1]  # of a process that was ended, the last one is not known to be over
    problems += [rest] * (len(names) - len(problems))
    return [
        UnitTest(name if names.count(name) == 1 else f"{name} ({names[:at].count(name) + 1})", not problem, problem)
        for at, (name, problem) in enumerate(zip(names, problems, strict=False))
    ]


def program_in(reply: str) -> str:
    """Return the last block of code of a reply; the whole reply if it has none."""
    blocks = code_blocks(reply)
    return blocks[-1].lines if blocks else reply
