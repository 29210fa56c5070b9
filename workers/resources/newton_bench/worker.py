"""newton_bench: discover an altered law of physics by experiments, and submit it as a Python function."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import pydantic
from gymq.workers.resources.newton_bench.checkout import OTHER_SYSTEMS, Checkout
from gymq.workers.resources.newton_bench.equivalence import AsMeant, Published, is_equivalent
from gymq.workers.resources.newton_bench.experiments import experiment_tools
from gymq.workers.resources.newton_bench.laws import MODULES, Module
from gymq.workers.resources.newton_bench.submission import (
    NUM_POINTS,
    LawFailed,
    NotEvaluated,
    find_law,
    predictions,
    problem_of_form,
    reward_of,
    rmsle,
)

import gymq
from gymq.judge import Judge, JudgeOptions
from gymq.processes import ComputeLimits, CpuTimeUsedUp
from gymq.sandbox import GIB, Limits, PythonSession
from gymq.sandboxed import SandboxedOptions

T = TypeVar("T")

SHORT_CHARACTERS = 1_000  # longer code is parsed in a process, and the event loop is free meanwhile

# The tool is for computing; what is refused here would only confuse, the sandbox is what protects.
_REFUSED_CODE = re.compile(
    r"\bimport\s+(os|sys|subprocess)\b|__import__|(?<![\w.])(eval|exec|open|file|input|raw_input|compile|globals|locals)\s*\("
)


class LawRow(gymq.Row):
    module_name: str
    difficulty: Literal["easy", "medium", "hard"]
    system: Literal["vanilla_equation", "simple_system", "complex_system"]
    law_version: Literal["v0", "v1", "v2"]
    noise_level: float = pydantic.Field(ge=0, allow_inf_nan=False)


@dataclass
class Investigation:
    """The law that one rollout is to find, and its Python tool."""

    row: LawRow
    module: Module
    law: Callable[[Mapping[str, float]], float]
    python: PythonSession
    is_open: bool = True

    def check_open(self) -> None:
        """Raises ToolError after `end_session`."""
        if not self.is_open:
            raise gymq.ToolError(400, "the session was ended")


@dataclass(frozen=True)
class Evaluation:
    """The findings about a submitted law; None: not determined."""

    rmsle: float | None
    symbolic_equivalent: bool | None
    exact_accuracy: float | None
    error: str | None


class NewtonBench(gymq.SandboxedEnvironment[gymq.Row, Investigation]):
    """Reward for a law close to the true one in numbers, and in form as a judge sees it."""

    class Options(JudgeOptions, SandboxedOptions):
        max_execution_time: pydantic.PositiveFloat = 60.0
        session_ttl: pydantic.PositiveFloat = 1800.0
        newton_bench_path: str | None = None  # a checkout, for the systems other than `vanilla_equation`

    reward_range = (-1.0, 1.0)
    needs = frozenset({"judge", "sandbox"})
    tools = experiment_tools()

    # Python sorts the combining marks of a name in quadratic time.
    compute_limits = ComputeLimits(cpu_s=10.0, timeout_s=200.0)

    async def start(self) -> None:
        self.session_ttl_s = self.options.session_ttl
        self._judge = Judge.of(self, self.options)
        self._rule = AsMeant() if self.options.hardened else Published()
        path, timeout_s = self.options.newton_bench_path, self.options.max_execution_time
        self._checkout = None if path is None else Checkout(path, timeout_s)
        await super().start()
        self._limits = self.options.sandbox.limits(Limits(memory_bytes=4 * GIB))

    async def open(self, row: LawRow) -> Investigation:
        module = MODULES.get(row.module_name)
        if module is None:
            raise gymq.InvalidTask(f"module_name: there is no module {row.module_name!r}, only {', '.join(MODULES)}")
        if row.system in OTHER_SYSTEMS and self._checkout is None:
            raise gymq.InvalidTask(f"system: {row.system} needs a checkout of NewtonBench in newton_bench_path")
        law = module.law(row.difficulty, row.law_version)
        return Investigation(row, module, law, PythonSession(self.sandbox, self._limits))

    async def close(self, state: Investigation) -> None:
        await state.python.close()

    async def measured_in_checkout(self, state: Investigation, arguments: dict[str, float]) -> Any:
        """Return what an experiment with another system than the law itself gives."""
        assert self._checkout is not None  # such rows are refused without
        row = state.row
        setting = {name: getattr(row, name) for name in ("noise_level", "difficulty", "system", "law_version")}
        return await self._checkout.measured(self.processes, state.module.name, arguments | setting)

    @gymq.tool
    async def execute_python(self, state: Investigation, code: str) -> dict[str, Any]:
        """Run Python code for computing. Names survive until the next call; the value of a last line that is an
        expression is returned. numpy, pandas, scipy and math are there."""
        state.check_open()
        try:
            refusal = await self._parsed(refusal_of, code)
        except CpuTimeUsedUp:
            refusal = "the code takes too long to read"
        if refusal is None:
            step = await state.python.run(code, self.options.max_execution_time)
            if step.success:
                said = {"stdout": step.stdout, "stderr": step.stderr}
                return {"success": True, **said, "error_message": None, "result": step.result}
            refusal = step.error
        return {"success": False, "stdout": "", "stderr": "", "error_message": refusal, "result": None}

    @gymq.tool
    async def end_session(self, state: Investigation) -> dict[str, str]:
        """End the session; nothing can be measured or computed after it."""
        state.check_open()
        state.is_open = False
        await state.python.close()
        return {"message": "the session is ended"}

    async def verify(self, request: gymq.VerifyRequest[gymq.Row, Investigation]) -> gymq.Verdict:
        state = request.state
        if state is None or not state.is_open:
            raise gymq.InvalidTask("the session is not seeded, or was ended")
        row = state.row
        law = find_law(request.response["output"])
        if law is None:
            evaluation = Evaluation(None, None, None, "no <final_law> was submitted")
        else:
            try:
                evaluation = await self.evaluate_law(law, state.module, row.difficulty, row.law_version)
            except NotEvaluated as error:
                evaluation = Evaluation(None, None, None, str(error))
        state.is_open = False
        await state.python.close()
        return gymq.Verdict(
            reward_of(evaluation.rmsle, evaluation.symbolic_equivalent, self._rule),
            difficulty=row.difficulty,
            system=row.system,
            noise_level=row.noise_level,
            law_version=row.law_version,
            extracted_law=law,
            rmsle=evaluation.rmsle,
            exact_accuracy=evaluation.exact_accuracy,
            symbolic_equivalent=evaluation.symbolic_equivalent,
            evaluation_error=evaluation.error,
        )

    async def evaluate_law(self, law: str, module: Module, difficulty: str, version: str) -> Evaluation:
        """Compare a submitted law with the true one, in numbers and, by the judge, in form.

        Raises:
            NotEvaluated: nothing can be said of it.
            RolloutError: sandbox or judge failed.
        """
        problem = problem_of_form(law, module)
        if problem is not None:
            return Evaluation(None, False, 0.0, problem)
        points, rule = module.points(NUM_POINTS), self._rule
        error, problem = None, None
        try:
            timeout_s = self.options.max_execution_time
            predicted = await predictions(self.sandbox, self.options.sandbox, law, points, timeout_s, rule)
        except LawFailed as failure:
            problem = str(failure)
        else:
            true_law = module.law(difficulty, version)
            error = rmsle(predicted, [true_law(point) for point in points], rule)
            problem = "the law gives no numbers, or infinite ones" if error is None else None
        shown = await self._shown(law)
        formula = module.formula(difficulty, version)
        equivalent = shown is not None and await is_equivalent(self._judge, module, formula, shown, rule)
        return Evaluation(error, equivalent, float(equivalent), problem)

    async def _shown(self, law: str) -> str | None:
        """Return a law as the judge is shown it; None if it is not Python."""
        try:
            return await self._parsed(self._rule.code, law)
        except (CpuTimeUsedUp, SyntaxError, ValueError, RecursionError, MemoryError):
            return None

    async def _parsed(self, function: Callable[[str], T], code: str) -> T:
        """Call a function that parses code of the policy."""
        return function(code) if len(code) <= SHORT_CHARACTERS else await self.compute(function, code)


def refusal_of(code: str) -> str | None:
    """Why code is not run by the Python tool; None if it is."""
    try:
        ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return f"the code is not valid Python: {error}"
    refused = _REFUSED_CODE.search(code)
    return f"the code may not use `{refused[0].rstrip('( ')}`" if refused else None
