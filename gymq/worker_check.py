"""Checking a worker: its own tests, its example rows, the rows in this process, and the whole way through a cluster."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from gymq.authoring import OptionsError
from gymq.bus import Bus, BusError
from gymq.collect import CollectError, Collection, CollectOptions
from gymq.config import Config, ConfigError
from gymq.example_rows import ExampleRow, RowChecker, specs_of
from gymq.jsonl import JsonlError, JsonlFile
from gymq.launch import Cluster, LaunchError
from gymq.materialise import MaterialiseOptions
from gymq.messages import FailureClass
from gymq.outcomes import InvalidTask, RolloutError
from gymq.registry import WorkerNotFound
from gymq.resources import Resources
from gymq.rows import FAILURE_CLASS, RowError
from gymq.server import ServerError
from gymq.testing import Harness, reply
from gymq.worker_source import WorkerSource

ROLLOUT_TIMEOUT_S = 120.0
MOST_DETAILS = 20

# What a stand-in cannot be: a judge, or a service that runs elsewhere. The worker said so properly.
_NOT_ITS_FAULT = frozenset({FailureClass.JUDGE_FAILED, FailureClass.COMPONENT_FAILED})

_EMPTY_REPLIES = {"an empty reply": reply(""), "no reply at all": reply()}


class Step(msgspec.Struct, frozen=True):
    """One thing that was checked."""

    name: str
    status: Literal["ok", "failed", "none"]  # none: there is nothing of that kind to check
    summary: str
    details: list[str] = []  # one line each


async def check_worker(source: WorkerSource, config: Config | None) -> AsyncIterator[Step]:
    """Check a worker step by step.

    Args:
        config: its configuration and that of a policy; None if it has none.
    """
    yield await _own_tests(source)
    rows: list[ExampleRow] = []
    step = _example_rows(source, config, rows)
    yield step
    if source.kind == "resources" and rows:
        yield await _in_this_process(source, config, rows)
    if step.status == "ok" and config is not None:
        yield await _end_to_end(source, config)


async def _own_tests(source: WorkerSource) -> Step:
    name = "its tests"
    if source.tests is None:
        return Step(name, "none", "no tests/test_*.py beside it")
    if importlib.util.find_spec("pytest") is None:
        return Step(name, "none", "not run, since pytest is not installed: pip install pytest")
    options = ["-v", "--tb=short", "--no-header", "-p", "no:cacheprovider"]
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
        return Step(name, "ok", summary)
    return Step(name, "failed", summary, lines[:-1])


def _example_rows(source: WorkerSource, config: Config | None, rows: list[ExampleRow]) -> Step:
    """Check each line and add it to `rows`."""
    name = "example rows"
    if source.examples is None:
        return Step(name, "none", "no data/example.jsonl beside it")
    problems: list[str] = []
    checker = RowChecker(source, config)
    try:
        for number, line in enumerate(JsonlFile(source.examples), 1):
            where = f"{source.examples.name}:{number}"
            try:
                rows.append(checker.read(line, where))
            except (JsonlError, RowError, ConfigError, InvalidTask) as error:
                problems.append(f"{where}: {error}")
    except (OptionsError, WorkerNotFound, JsonlError) as error:
        problems.append(str(error))
    if problems:
        return Step(name, "failed", f"{len(problems)} problems", problems[:MOST_DETAILS])
    if not rows:
        return Step(name, "failed", f"{source.examples} has no rows")
    agents = sorted({row.agent for row in rows if row.agent is not None})
    return Step(name, "ok", f"{len(rows)} rows" + (f" for {', '.join(agents)}" if agents else ""))


# In this process ------------------------------------------------------------------------------------------------------


async def _in_this_process(source: WorkerSource, config: Config | None, rows: list[ExampleRow]) -> Step:
    name = "in this process"
    options: dict[str, Any] = {}
    if config is not None:
        options = next((found.options for found in config.instances if source.is_run_by(found)), {})
    assert issubclass(source.cls, Resources)
    problems: list[str] = []
    rewards: list[float] = []
    notes: set[str] = set()
    try:
        async with Harness(source.cls, options) as harness:
            for row in rows:
                for what, response in _EMPTY_REPLIES.items():
                    try:
                        rewards.append((await harness.verify(row.members, response)).reward)
                    except RolloutError as error:
                        _sort_failure(f"{row.where}, {what}: ", error, problems, notes)
    except Exception as error:  # the worker's own start and stop, which may raise anything
        problems.append(f"it cannot be started: {type(error).__name__}: {error}")
    details = [*sorted(notes), *(_shown_tool(schema) for schema in _schemas(source.cls))]
    if problems:
        return Step(name, "failed", f"{len(problems)} problems", [*problems[:MOST_DETAILS], *details])
    highest = f", rewards up to {max(rewards):g}" if rewards else ""
    return Step(name, "ok", f"{len(rows)} rows seeded and verified with empty replies{highest}", details)


def _sort_failure(where: str, error: RolloutError, problems: list[str], notes: set[str]) -> None:
    """A typed failure is a proper answer to an empty reply; an exception in the verifier is a mistake in it."""
    if error.failure_class is FailureClass.VERIFIER_FAILED:
        problems.append(where + error.message)
    else:
        notes.add(f"{error.failure_class}: {error.message}")


def _schemas(cls: type[Resources[Any]]) -> Iterator[dict[str, Any]]:
    for tool in cls.tools.values():
        yield tool.schema()


def _shown_tool(schema: dict[str, Any]) -> str:
    parameters = msgspec.json.encode(schema["parameters"]["properties"]).decode()
    description = str(schema["description"]).partition("\n")[0]
    return f"tool {schema['name']} {parameters}  {description}".rstrip()


# End to end -----------------------------------------------------------------------------------------------------------


async def _end_to_end(source: WorkerSource, config: Config) -> Step:
    name = "end to end"
    agents = [found.name for found in config.instances if found.kind == "agents"]
    if not agents:
        return Step(name, "none", "its configuration has no agent, so nothing can be rolled out")
    assert source.examples is not None
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gymq-test-") as temporary:
        folder = Path(temporary)
        options = CollectOptions(
            input=source.examples,
            output=folder / "rollouts.jsonl",
            materialise=MaterialiseOptions(agent_name=agents[0] if len(agents) == 1 else None),
            rollout_timeout_s=ROLLOUT_TIMEOUT_S,
        )
        try:
            async with Cluster(specs_of(config, source), folder=folder / "cluster", log_level="warning") as cluster:
                bus = await Bus.connect(cluster.url, role="client", name="gymq test")
                try:
                    collection = Collection(bus, options)
                    progress = await collection.run()
                finally:
                    await bus.close()
        except (BusError, CollectError, JsonlError, LaunchError, RowError, ServerError) as error:
            return Step(name, "failed", str(error))
        problems, notes = _failures(JsonlFile(collection.files.failures))
    count = sum(count for count, _ in progress.rewards.values())
    total = sum(total for _, total in progress.rewards.values())
    mean = f", mean reward {total / count:.2f}" if count else ""
    summary = f"{progress.total} rollouts in {time.monotonic() - started:.0f} s{mean}"
    if problems:
        return Step(name, "failed", f"{summary}, {len(problems)} failed", [*problems[:MOST_DETAILS], *notes])
    return Step(name, "ok", summary, notes)


def _failures(lines: JsonlFile) -> tuple[list[str], list[str]]:
    """The failures that are mistakes, and those that a stand-in for the policy explains."""
    problems: list[str] = []
    notes: dict[str, None] = {}
    for line in lines:
        failure = msgspec.json.decode(line)
        failure_class = failure[FAILURE_CLASS]
        text = f"{failure_class} at {failure['_ng_failure_stage']}: {failure['_ng_failure_message']}"
        if failure_class in _NOT_ITS_FAULT:
            notes[f"{text} (not counted: the stand-in for the policy judges nothing)"] = None
        else:
            problems.append(text)
    return problems, list(notes)
