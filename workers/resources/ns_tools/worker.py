"""ns_tools: a Python notebook as a tool; the verdict is that of another verifier, which the row names."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass, field
from typing import Any

import pydantic

import gymq
from gymq.ext.delegation import DelegatedVerifier, VerifierOptions
from gymq.sandbox import GIB, Limits, PythonSession
from gymq.sandboxed import SandboxedOptions

PYTHON_TOOL = "stateful_python_code_exec"
# NeMo Skills has two tools that both are this notebook: one asks a server, the other runs in the process.
_SPEC_OF_PYTHON_TOOL = re.compile(r"(^|[.:])(Direct)?PythonTool$")


class ToolsRow(gymq.Row):
    verifier_type: str | None = None


@dataclass
class CallRecord:
    """One call of a tool."""

    seconds: float
    timed_out_inside: bool = False  # reported by the tool in its result
    timed_out: bool = False  # the tool did not answer


@dataclass
class ToolSession:
    """The notebook of one rollout, and its calls."""

    notebook: PythonSession
    calls: list[CallRecord] = field(default_factory=list)
    history: list[str] = field(default_factory=list)  # code that made the notebook's names
    names_lost: bool = False


class PythonToolOptions(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")

    exec_timeout_s: pydantic.PositiveFloat = 10.0


class ToolOverrides(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")

    PythonTool: PythonToolOptions = pydantic.Field(
        default=PythonToolOptions(), validation_alias=pydantic.AliasChoices("PythonTool", "DirectPythonTool")
    )


class NsTools(gymq.SandboxedEnvironment[ToolsRow, ToolSession]):
    """Reward of the verifier that the row names; the tool is a Python notebook."""

    class Options(SandboxedOptions):
        default_verifier: str = "math_with_judge"
        verifiers: dict[str, VerifierOptions] = pydantic.Field({"math_with_judge": {}}, validate_default=True)
        tools: list[str] = pydantic.Field(
            [PYTHON_TOOL], validation_alias=pydantic.AliasChoices("tools", "nemo_skills_tools")
        )
        nemo_skills_tool_overrides: ToolOverrides = ToolOverrides()
        disable_session_restore: bool = False
        # Of the servers that NeMo Skills' tools need; the notebook here has none.
        sandbox_host: str = "127.0.0.1"
        sandbox_port: int = 6000
        python_tool_port: int = 8765
        verbose_tool_logging: bool = False

        @pydantic.field_validator("verifiers", mode="before")
        @classmethod
        def _check_verifiers(cls, verifiers: Any) -> Any:
            """A list of names stands for the workers of these names, with their default options."""
            return {name: {} for name in verifiers} if isinstance(verifiers, list) else verifiers

        @pydantic.field_validator("tools")
        @classmethod
        def _known_specs(cls, tools: list[str]) -> list[str]:
            """NeMo Skills names its notebook by module and class."""
            return [PYTHON_TOOL if _SPEC_OF_PYTHON_TOOL.search(tool) else tool for tool in tools]

    reward_range = (-1000.0, 1000.0)  # whatever the verifier gives

    async def start(self) -> None:
        for name in self.options.tools:
            self.check_tool(name)
        await super().start()
        self._limits = self.options.sandbox.limits(Limits(memory_bytes=4 * GIB))
        self._verifiers: dict[str, DelegatedVerifier] = {}
        for name, options in self.options.verifiers.items():
            self._verifiers[name] = self.make_verifier(name, options)
            await self._verifiers[name].start()

    async def stop(self) -> None:
        for verifier in self._verifiers.values():
            await verifier.stop()
        await super().stop()

    def check_tool(self, name: str) -> None:
        """Raises OptionsError if there is no such tool."""
        if name != PYTHON_TOOL:
            raise gymq.OptionsError(f"tools: there is no tool {name!r}, only {PYTHON_TOOL}")

    def make_verifier(self, name: str, options: VerifierOptions) -> DelegatedVerifier:
        """Return the verifier that rows call by a name."""
        return DelegatedVerifier(name, options, self)

    async def open(self, row: gymq.Row) -> ToolSession:
        return await self.open_unseeded()

    async def open_unseeded(self) -> ToolSession:
        return ToolSession(PythonSession(self.sandbox, self._limits))

    async def close(self, state: ToolSession) -> None:
        await state.notebook.close()

    @gymq.tool
    async def stateful_python_code_exec(self, state: ToolSession, code: str) -> dict[str, str]:
        """Run Python code in a notebook that keeps its names. The value of a last expression is shown."""
        timeout_s = self.options.nemo_skills_tool_overrides.PythonTool.exec_timeout_s
        if state.names_lost and not self.options.disable_session_restore:
            for earlier in state.history:
                await state.notebook.run(earlier, timeout_s)
        step = await state.notebook.run(code, timeout_s)
        state.names_lost = step.names_lost
        if not step.names_lost:
            state.history.append(code)
        if step.timed_out:
            return {"process_status": "timeout", "stdout": step.stdout, "stderr": step.stderr + "Timed out\n"}
        shown = step.stdout if step.shown is None else f"{step.stdout}{step.shown}\n"
        if step.success:
            return {"process_status": "completed", "stdout": shown, "stderr": step.stderr}
        problem = step.traceback or f"{step.error}\n"
        return {"process_status": "error", "stdout": shown, "stderr": step.stderr + problem}

    async def call_tool(self, state: ToolSession, name: str, arguments: Any) -> Any:
        if not self.options.tools:
            return {"error": "No tools configured"}
        if name not in self.options.tools:
            return {"error": f"Unknown tool: {name}"}
        began = time.monotonic()
        try:
            result = await self.execute(state, name, arguments)
        except TimeoutError:
            state.calls.append(CallRecord(time.monotonic() - began, timed_out=True))
            return {"error": "Request timeout", "process_status": "timeout"}
        except gymq.RolloutError:
            raise
        except Exception as error:
            state.calls.append(CallRecord(time.monotonic() - began))
            return {"error": str(error)}
        state.calls.append(CallRecord(time.monotonic() - began, timed_out_inside=_says_timeout(result)))
        return result

    async def execute(self, state: ToolSession, name: str, arguments: Any) -> Any:
        """Run a tool; its exceptions are reported to the model."""
        return await super().call_tool(state, name, arguments)

    async def verify(self, request: gymq.VerifyRequest[ToolsRow, ToolSession]) -> gymq.Verdict:
        state = request.state
        calls = [] if state is None else state.calls
        seconds = sum(call.seconds for call in calls)
        if state is not None:
            await state.notebook.close()
        answer = await self._verifier_of(request.row).answer(request)
        if state is not None:
            state.calls = []  # not before there is a verdict: one that failed is asked for again
        return gymq.Verdict(
            answer["reward"],
            delegated_response=answer,
            num_tool_calls=len(calls),
            tool_timeout_count=sum(call.timed_out_inside for call in calls),
            tool_request_timeout_count=sum(call.timed_out for call in calls),
            total_tool_execution_time_seconds=seconds,
            avg_tool_call_time_seconds=seconds / len(calls) if calls else 0.0,
        )

    def _verifier_of(self, row: ToolsRow) -> DelegatedVerifier:
        name = row.verifier_type or self.options.default_verifier
        if name not in self._verifiers:
            known = ", ".join(self._verifiers) or "none"
            raise gymq.InvalidTask(f"verifier_type: there is no verifier {name!r} in the configuration, only {known}")
        return self._verifiers[name]


def _says_timeout(result: Any) -> bool:
    if isinstance(result, str):
        try:
            result = json.loads(result)
        except (ValueError, RecursionError):
            return False
    return isinstance(result, dict) and result.get("process_status") == "timeout"
