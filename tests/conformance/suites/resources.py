"""Run one case of a resources worker: seed a session, call tools, verify, and compare everything the case names."""

import asyncio
import importlib
import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

from gymq.authoring import OptionsError, Reference
from gymq.execution.loading import registry
from gymq.failures import RolloutError
from gymq.processes import KillableProcesses
from gymq.protocol.codec import Decoder, encode
from gymq.protocol.messages import FailureClass, ToolResult, Verified
from gymq.resources import Resources
from gymq.testing import Harness, HarnessSession, ScriptedModel

from ..cases import ResourcesCase, ToolCall
from ..comparison import (
    ANY,
    FIELDS,
    Mismatch,
    differences,
    field_differences,
    list_differences,
    reward_differences,
    tool_differences,
)
from ..scripted import ScriptedComponents, ScriptedJudge

WORKERS = Path(__file__).parents[3] / "workers" / "resources"

FAILURES = {
    FailureClass.INVALID_TASK: "invalid_request",
    FailureClass.JUDGE_FAILED: "judge_failed",
    FailureClass.COMPONENT_FAILED: "component_failed",
}
"""How a case names the failures it can expect; any other failure is never expected."""

OURS = "spec"
"""The `source` of a case whose expectation is not the peer's."""

PATH_OPTIONS = ("data_dir", "databases", "problems")
"""Keys of `config` that hold a path relative to the case files, where their value is a text."""

JUDGE = Reference(type="responses_api_models", name="judge")

Outcome = dict[str, Any] | RolloutError
"""A verify answer (row, response and verdict in one object), or why there is none."""

_decode = Decoder(Verified)


def find_worker(name: str) -> type[Resources[Any]] | None:
    """The Resources class in `workers/resources/NAME/worker.py`, or None if there is no such file."""
    if not (WORKERS / name / "worker.py").is_file():
        return None
    return registry.find_class("resources", name)


async def check_resources(
    worker: type[Resources[Any]],
    case: ResourcesCase,
    folder: Path,
    *,
    as_recorded: bool = True,
    processes: KillableProcesses | None = None,
) -> None:
    """Run `case`, whose files lie in `folder`.

    Args:
        as_recorded: run a case that was recorded from the peer by the peer's rules, that is, with `hardened` false
            where the worker has that option. Otherwise with the worker's own default.
        processes: where the worker computes, kept for other cases; None: processes of its own.

    Raises:
        Mismatch: something differs from what the case expects.
    """
    judge = ScriptedJudge(case.judge_replies)
    components = ScriptedComponents(case.component_replies)
    try:
        options = options_for(worker, case.config, folder)
        if as_recorded and case.source != OURS and "hardened" in worker.Options.model_fields:
            options.setdefault("hardened", False)
        harness = Harness(worker, options, models=ScriptedModel(judge.respond), processes=processes)
    except OptionsError as error:
        raise Mismatch([f"the worker refuses the configuration: {error}"]) from None
    mock_components(harness.author, case, components)
    async with harness:
        found = await CaseRun(harness, case, judge, components).differences()
    if found:
        raise Mismatch(found)


def options_for(worker: type[Resources[Any]], config: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The case's options, with references to the scripted judge and placeholders for what a case leaves out."""
    options: dict[str, Any] = {}
    for name, option in worker.Options.model_fields.items():
        if option.annotation is Reference or Reference in get_args(option.annotation):
            options[name] = JUDGE
        elif option.is_required():
            options[name] = {"input": []} if name.endswith("_create_params") else "placeholder"
    paths = {key: str(folder / config[key]) for key in PATH_OPTIONS if isinstance(config.get(key), str)}
    return options | config | paths


def mock_components(author: Resources[Any], case: ResourcesCase, components: ScriptedComponents) -> None:
    """Replace what the worker calls outside by the script, with `install` of the module named like the worker."""
    mock = _mock(case.server)
    if mock is not None:
        mock.install(author, components)
    elif case.component_replies or "component_calls" in case.expect:
        raise LookupError(f"tests/conformance/components/{case.server}.py is missing: the case scripts components")


def _mock(name: str) -> ModuleType | None:
    module = f"{__package__.rpartition('.')[0]}.components.{name}"
    return importlib.import_module(module) if importlib.util.find_spec(module) else None


class CaseRun:
    """One run of one case."""

    def __init__(
        self, harness: Harness, case: ResourcesCase, judge: ScriptedJudge, components: ScriptedComponents
    ) -> None:
        self._harness = harness
        self._case = case
        self._judge = judge
        self._components = components
        self._sessions: dict[str, HarnessSession] = {}
        self._found: list[str] = []

    async def differences(self) -> list[str]:
        """Everything in which the worker differs from the case."""
        case = self._case
        if case.responses:
            self._compare_group(await self._verify_group())
        else:
            await self._seed_main()
            for position, call in enumerate(case.tool_calls):
                await self._call_tool(call, f"tool_calls[{position}]")
            if case.response is not None:
                self._compare_outcome(await self._verify(self._sessions["main"], case.response))
        self._compare_outside_calls()
        return self._found

    async def _seed_main(self) -> None:
        refusal = None
        if self._case.seed:
            try:
                self._sessions["main"] = await self._harness.session(self._case.row)
            except RolloutError as error:
                refusal = error
        if "main" not in self._sessions:
            self._sessions["main"] = await self._harness.session(None)
        if "seed" in self._case.expect:
            self._compare_refusal(self._case.expect["seed"], refusal, "seed")
        elif refusal is not None and not self._is_expected(refusal):
            self._found.append(f"seed: refused with {refusal.failure_class}: {refusal}")

    def _is_expected(self, refusal: RolloutError) -> bool:
        """A row that verification must refuse may be refused at seeding already."""
        return self._case.expect.get("error") == "invalid_request" == FAILURES.get(refusal.failure_class)

    async def _call_tool(self, call: ToolCall, path: str) -> None:
        if call.session not in self._sessions:
            self._sessions[call.session] = await self._harness.session(None)
        result = await self._tool_result(self._sessions[call.session], call)
        if call.result == ANY:
            return
        if _is_error(call.result):
            self._found += _error_differences(call.result["error"], result, path)
        elif result.status != 200:
            self._found.append(f"{path}: expected an answer, got the error {result.status}: {result.output}")
        else:
            self._found += tool_differences(call.result, result.output, path)

    async def _tool_result(self, session: HarnessSession, call: ToolCall) -> ToolResult:
        try:
            if call.name == "seed_session":
                await session.seed(call.arguments)
                # An environment that brings its own observations and tools returns them after it was seeded.
                tells = "reset" in self._harness.author.tools
                return await session.call("reset", {}) if tells else ToolResult(output="{}")
            return await session.call(call.name, call.arguments)
        except RolloutError as error:
            statuses = {FailureClass.SESSION_LOST: 400, FailureClass.INVALID_TASK: 422}
            return ToolResult(output=json.dumps({"error": str(error)}), status=statuses.get(error.failure_class, 500))

    async def _verify_group(self) -> list[Outcome]:
        sessions = [await self._harness.session(self._case.row) for _ in self._case.responses]
        return await asyncio.gather(*map(self._verify, sessions, self._case.responses))

    async def _verify(self, session: HarnessSession, response: dict[str, Any]) -> Outcome:
        try:
            verdict = await session.verify(self._case.row, response)
        except RolloutError as error:
            return error
        # Sent over the wire, so that what only exists in this process does not pass for an answer.
        verified = _decode(encode(Verified(reward=verdict.reward, verdict=verdict.fields)))
        return {**self._case.row, "response": response, **verified.verdict, "reward": verified.reward}

    def _compare_outcome(self, outcome: Outcome) -> None:
        expect = self._case.expect
        if "error" in expect:
            self._compare_refusal(expect["error"], outcome, "verify")
        elif isinstance(outcome, RolloutError):
            self._found.append(f"verify: expected a verdict, got {outcome.failure_class}: {outcome}")
        else:
            self._found += field_differences(self._case.expected_fields, outcome)
            if "verdicts" in expect:
                self._found += _verdict_differences(expect["verdicts"], outcome)

    def _compare_group(self, outcomes: list[Outcome]) -> None:
        if "error" in self._case.expect:
            for position, outcome in enumerate(outcomes):
                self._compare_refusal(self._case.expect["error"], outcome, f"verify[{position}]")
            return
        for position, (wanted, outcome) in enumerate(zip(self._case.expect["rewards"], outcomes, strict=True)):
            if isinstance(outcome, RolloutError):
                self._found.append(f"rewards[{position}]: got {outcome.failure_class}: {outcome}")
            else:
                self._found += reward_differences(wanted, outcome["reward"], f"rewards[{position}]")

    def _compare_refusal(self, wanted: str, outcome: Outcome | None, what: str) -> None:
        if not isinstance(outcome, RolloutError):
            self._found.append(f"{what}: expected {wanted}, but it was answered: {outcome}")
        elif FAILURES.get(outcome.failure_class) != wanted:
            self._found.append(f"{what}: expected {wanted}, got {outcome.failure_class}: {outcome}")

    def _compare_outside_calls(self) -> None:
        expect, judge, components = self._case.expect, self._judge, self._components
        if judge.unscripted_calls:
            self._found.append(f"{judge.unscripted_calls} of {len(judge.calls)} judge calls have no scripted reply")
        for component in components.unscripted_calls:
            self._found.append(f"a call of the component {component} has no scripted reply")
        if "judge_calls" in expect:
            self._found += differences(expect["judge_calls"], len(judge.calls), FIELDS, "judge_calls")
        if "judge_prompts" in expect:
            self._found += differences(expect["judge_prompts"], judge.prompts, FIELDS, "judge_prompts")
        if "component_calls" in expect:
            self._found += list_differences(expect["component_calls"], components.calls, "component_calls")


def _is_error(result: Any) -> bool:
    """Whether an expected result stands for an error answer."""
    return (
        isinstance(result, dict)
        and result.keys() == {"error"}
        and isinstance(result["error"], dict)
        and "status" in result["error"]
    )


def _error_differences(wanted: dict[str, Any], result: ToolResult, path: str) -> list[str]:
    if result.status == 200:
        return [f"{path}: expected the error {wanted['status']}, got the answer {result.output}"]
    found = differences(wanted["status"], result.status, FIELDS, f"{path}.status")
    if "text" in wanted:
        found += differences(wanted["text"], _error_text(result.output), FIELDS, f"{path}.text")
    return found


def _error_text(output: str) -> Any:
    """The sentence in a tool's error answer."""
    answer = json.loads(output)
    return answer.get("error") if isinstance(answer, dict) else answer


def _verdict_differences(labels: list[str | None], answer: dict[str, Any]) -> list[str]:
    evaluations = answer.get("judge_evaluations")
    if not isinstance(evaluations, list):
        return [f"judge_evaluations: expected a list with the verdicts {labels}, got {evaluations!r}"]
    return list_differences([{"verdict_label": label} for label in labels], evaluations, "judge_evaluations")
