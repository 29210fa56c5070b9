"""gymq test"""

# ruff: noqa: PT028 (the function is named like its command and is no test)

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter
from rich.console import Console
from rich.text import Text

from gymq.cli.cluster import POLICY, read_config
from gymq.cli.errors import told_plainly
from gymq.cli.printable import printable
from gymq.config import Config, ConfigError
from gymq.worker_check import Step, check_worker
from gymq.worker_source import WorkerSource, find_worker

STAND_IN = Path("workers/models/simulated_model/config.yaml")
# Rows may bring a solution for it to play.
ALWAYS_RIGHT = f"++{POLICY}.responses_api_models.simulated_model.skill=1.0"

_STYLES = {"ok": "green", "failed": "red", "none": "dim"}
_NAME_WIDTH = 17


def test(
    worker: str,
    /,
    *,
    config: Annotated[tuple[Path, ...], Parameter(alias="-c", consume_multiple=False)] = (),
    json: bool = False,
) -> int:
    """Check a worker: its tests, its example rows, and a rollout of each row through a small cluster.

    A worker is named (`gymq test mcqa`), or given as a folder with worker.py or as a Python file. What is beside it is
    checked: `tests/`, `data/example.jsonl`, `config.yaml`. The policy is a stand-in that plays the solutions the rows
    bring along. Ends with status 1 if anything fails.

    Args:
        worker: name, folder or file of the worker.
        config: configuration to use instead of its own config.yaml; may be given several times.
        json: print what was found as one JSON object.
    """
    with told_plainly():
        source = find_worker(worker)
        steps: list[Step] = []
        settings: Config | None = None
        try:
            settings = _settings(source, config)
        except ConfigError as error:
            steps.append(Step("configuration", "failed", str(error)))
        steps += asyncio.run(_check(source, settings, steps, quiet=json))
    failed = any(step.status == "failed" for step in steps)
    checked = any(step.status == "ok" for step in steps)
    if json:
        report = {"worker": source.name, "kind": source.kind, "ok": checked and not failed, "steps": steps}
        print(msgspec.json.encode(report).decode())
    elif not checked and not failed:
        print("there is nothing to check: it has neither tests nor example rows")
    return 1 if failed or not checked else 0


async def _check(source: WorkerSource, settings: Config | None, before: list[Step], *, quiet: bool) -> list[Step]:
    console = Console(quiet=quiet)
    console.print(printable(f"{source.name}: {source.kind} worker in {_shown_path(source.file)}"), soft_wrap=True)
    for step in before:
        _print(step, console)
    steps = []
    async for step in check_worker(source, settings):
        _print(step, console)
        steps.append(step)
    return steps


def _print(step: Step, console: Console) -> None:
    head = Text(f"  {step.name:{_NAME_WIDTH}}")
    status = Text(f"{'-' if step.status == 'none' else step.status:8}", style=_STYLES[step.status])
    console.print(head + status + printable(step.summary), soft_wrap=True)
    for line in step.details:
        console.print(printable(f"      {line}"), soft_wrap=True)


def _settings(source: WorkerSource, config: tuple[Path, ...]) -> Config | None:
    """The worker's configuration with a stand-in as the policy, unless it brings a policy of its own."""
    paths = config or ((source.config,) if source.config is not None else ())
    if not paths:
        return None
    try:
        return read_config([*paths, STAND_IN], [ALWAYS_RIGHT])
    except ConfigError as error:
        try:
            return read_config(paths, [])
        except ConfigError:
            raise error from None


def _shown_path(file: Path) -> str:
    here = Path.cwd()
    return str(file.relative_to(here) if file.is_relative_to(here) else file)
