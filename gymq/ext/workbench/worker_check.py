"""Checking a worker: its tests, its example rows, the rows in this process, and rollouts in a cluster."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec

from gymq.authoring import OptionsError
from gymq.bus import Bus, BusError
from gymq.cluster.launch import Cluster
from gymq.config import Config, ConfigError
from gymq.data.datasets import Dataset
from gymq.data.jsonl import JsonlError, JsonlFile
from gymq.data.materialise import MaterialiseOptions
from gymq.data.row_problems import RowProblems
from gymq.data.rows import FAILURE_CLASS, FAILURE_MESSAGE, FAILURE_STAGE, RowError
from gymq.errors import UsageError
from gymq.execution.loading.registry import WorkerNotFound
from gymq.execution.loading.worker_source import WorkerSource
from gymq.ext.shared.checks import MAX_DETAILS, UNDECIDED, Check, checked
from gymq.ext.workbench.example_rows import ExampleRow, RowChecker, instances_under_test
from gymq.failures import InvalidTask, RolloutError
from gymq.protocol.messages import FailureClass
from gymq.render import counted
from gymq.resources import Resources
from gymq.runs.collection.collection import Collection
from gymq.runs.collection.options import CollectOptions
from gymq.runs.collection.own_solutions import unsolved_rows
from gymq.runs.collection.plan import RunPlan
from gymq.testing import Harness, reply
from gymq.workers import SHIPPED

_EMPTY_REPLIES = {"an empty reply": reply(""), "no reply at all": reply()}


async def check_worker(
    source: WorkerSource, config: Config | None, prompt_field: str | None = None
) -> AsyncIterator[Check]:
    """Check a worker step by step.

    Args:
        config: its configuration, with a policy; None if it has none.
        prompt_field: field of the rows with the prompt; None: one of the usual names.
    """
    yield await _own_tests(source)
    rows: list[ExampleRow] = []
    checker = RowChecker(source, config, prompt_field)
    step = _example_rows(source, checker, rows)
    yield step
    if source.kind == "resources" and rows:
        yield await _in_this_process(source, config, rows)
    if step.status == "ok" and config is not None:
        yield await _end_to_end(source, config, prompt_field)


async def _own_tests(source: WorkerSource) -> Check:
    name = "its tests"
    if source.tests is None:
        is_shipped = source.folder is not None and source.folder.is_relative_to(SHIPPED)
        hint = ": an installed gymq comes without them, its repository has them" if is_shipped else ""
        return Check(name, "none", f"no tests/test_*.py beside it{hint}")
    if importlib.util.find_spec("pytest") is None:
        return Check(name, "none", "not run, since pytest is not installed: pip install 'gymq[test]'")
    options = ["-v", "--tb=short", "--no-header", "-p", "no:cacheprovider"]
    if importlib.util.find_spec("pytest_asyncio") is not None:
        options += ["-o", "asyncio_mode=auto"]
    elif any(b"async def test_" in file.read_bytes() for file in source.tests.rglob("test_*.py")):
        text = "not run, since they are async and pytest-asyncio is not installed: pip install 'gymq[test]'"
        return Check(name, "none", text)
    command = [sys.executable, "-m", "pytest", *options, str(source.tests)]
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    lines = output.decode("utf-8", "replace").strip().splitlines()
    summary = lines[-1].strip("= ") if lines else f"pytest ended with status {process.returncode}"
    if process.returncode == 0:
        return Check(name, "ok", summary)
    return Check(name, "failed", summary, lines[:-1])


def _example_rows(source: WorkerSource, checker: RowChecker, rows: list[ExampleRow]) -> Check:
    """Check each line and add it to `rows`."""
    name = "example rows"
    if source.examples is None:
        return Check(name, "none", "no data/example.jsonl beside it; --rows FILE names others")
    found = RowProblems()
    problems: list[str] = []
    file = source.examples.name
    try:
        lines = Dataset(source.examples).lines(lambda number, problem: found.add(f"{file}:{number}", problem))
        for number, line in enumerate(lines, 1):
            where = f"{file}:{number}"
            try:
                if line:
                    rows.append(checker.read(line, where))
            except (JsonlError, RowError, ConfigError, InvalidTask) as error:
                found.add(where, str(error))
    except (OptionsError, WorkerNotFound, JsonlError) as error:
        problems.append(str(error))
    problems += found.lines()
    if not rows and not problems:
        return Check(name, "failed", f"{source.examples} has no rows")
    agents = sorted({row.agent for row in rows if row.agent is not None})
    return checked(name, problems, counted(len(rows), "row") + (f" for {', '.join(agents)}" if agents else ""))


# In this process ------------------------------------------------------------------------------------------------------


async def _in_this_process(source: WorkerSource, config: Config | None, rows: list[ExampleRow]) -> Check:
    name = "in this process"
    options: dict[str, Any] = {}
    if config is not None:
        options = next((found.options for found in config.instances if source.is_run_by(found)), {})
    assert issubclass(source.cls, Resources)
    problems: dict[str, list[str]] = {}  # the rows and replies with each of them
    rewards: list[float] = []
    notes: set[str] = set()
    try:
        async with Harness(source.cls, options) as harness:
            for row in rows:
                for what, response in _EMPTY_REPLIES.items():
                    try:
                        rewards.append((await harness.verify(row.fields, response)).reward)
                    except RolloutError as error:
                        _sort_failure(f"{row.where}, {what}", error, problems, notes)
    except Exception as error:  # the worker's own start and stop, which may raise anything
        problems[f"{type(error).__name__}: {error}"] = ["it cannot be started"]
    details = [*sorted(notes), *(_shown_tool(tool.schema()) for tool in source.cls.tools.values())]
    if problems:
        shown = [f"{_first_of(where)}: {problem}" for problem, where in problems.items()]
        return Check(name, "failed", counted(len(problems), "problem"), [*shown[:MAX_DETAILS], *details])
    verdicts = f"an empty reply earns at most {max(rewards):g}" if rewards else "no verdict on empty replies"
    return Check(name, "ok", f"{counted(len(rows), 'row')}: {verdicts}", details)


def _sort_failure(where: str, error: RolloutError, problems: dict[str, list[str]], notes: set[str]) -> None:
    """Sort a failure: a typed failure is a proper answer to an empty reply, an exception in the verifier a problem."""
    if error.failure_class is FailureClass.VERIFIER_FAILED:
        problems.setdefault(error.message, []).append(where)
    else:
        notes.add(f"{error.failure_class}: {error.message}")


def _first_of(where: list[str]) -> str:
    return where[0] if len(where) == 1 else f"{where[0]}, and {len(where) - 1} more"


def _shown_tool(schema: dict[str, Any]) -> str:
    parameters = msgspec.json.encode(schema["parameters"]["properties"]).decode()
    description = str(schema["description"]).partition("\n")[0]
    return f"tool {schema['name']} {parameters}  {description}".rstrip()


# End to end -----------------------------------------------------------------------------------------------------------


async def _end_to_end(source: WorkerSource, config: Config, prompt_field: str | None) -> Check:
    name = "end to end"
    if not config.agents:
        return Check(name, "none", "its configuration has no agent, so nothing can be rolled out")
    assert source.examples is not None
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gymq-test-") as temporary:
        folder = Path(temporary)
        options = CollectOptions(
            input=source.examples,
            output=folder / "rollouts.jsonl",
            materialise=MaterialiseOptions(agent_name=config.only_agent, prompt_field=prompt_field),
            rollout_timeout_s=120.0,
        )
        plan = RunPlan.with_workers(options, config)
        try:
            workers = instances_under_test(config, source)
            async with (
                Cluster(workers, folder=folder / "cluster", log_level="warning") as cluster,
                await Bus.connect(cluster.url, role="client", name="gymq test") as bus,
            ):
                collection = Collection(bus, plan)
                progress = await collection.run()
        except (BusError, UsageError, JsonlError, RowError) as error:
            return Check(name, "failed", str(error))
        problems, notes = _failures(JsonlFile(collection.files.failures))
        unsolved = unsolved_rows(plan)
    mean = "" if progress.mean_reward is None else f", mean reward {progress.mean_reward:.2f}"
    summary = f"{counted(progress.total, 'rollout')} in {time.monotonic() - started:.0f} s{mean}"
    if problems:
        shown = [f"{count} {problem}" for problem, count in problems.most_common(MAX_DETAILS)]
        return Check(name, "failed", f"{summary}, {problems.total()} failed", [*shown, *unsolved, *notes])
    if unsolved:
        return Check(name, "failed", f"{summary}, less than the solutions of the rows should earn", [*unsolved, *notes])
    return Check(name, "ok", summary, notes)


def _failures(lines: JsonlFile) -> tuple[Counter[str], list[str]]:
    """Return the failures that are problems, and those that the simulated policy explains."""
    problems: Counter[str] = Counter()
    notes: dict[str, None] = {}
    for line in lines:
        failure = msgspec.json.decode(line)
        failure_class = failure[FAILURE_CLASS]
        text = f"{failure_class} at {failure[FAILURE_STAGE]}: {failure[FAILURE_MESSAGE]}"
        if failure_class in UNDECIDED:  # a judge, or a service that runs elsewhere, has no mock here
            notes[f"{text} (not counted: the simulated policy cannot judge)"] = None
        else:
            problems[text] += 1
    return problems, list(notes)
