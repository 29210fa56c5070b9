"""The command `gymq test`."""

# ruff: noqa: PT028 (the function is named like its command and is not a test)

from __future__ import annotations

import asyncio
import sys
import textwrap
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec
from rich.console import Console
from rich.text import Text

from gymq.cli.shared.configuration import JUDGE_IN_CONFIG, read_config
from gymq.cli.shared.errors import UsageError
from gymq.cli.shared.parameters import ConfigFiles, Repeated, WorkerSources
from gymq.config import Config, ConfigError
from gymq.config.assembled import POLICY
from gymq.execution.loading.worker_source import WorkerSource, find_worker
from gymq.ext.workbench.worker_check import check_worker
from gymq.render import STATUS_STYLES, print_prose, printable
from gymq.testing import Check

SIMULATED_MODEL = Path("workers/models/simulated_model/config.yaml")
# Rows may bring a solution for it to play.
ALWAYS_RIGHT = f"++{POLICY}.responses_api_models.simulated_model.skill=1.0"
_NAME_WIDTH = 17


def test(
    worker: str,
    /,
    *,
    rows: Path | None = None,
    prompt_field: str | None = None,
    config: ConfigFiles = (),
    option: Repeated = (),
    json: bool = False,
) -> int:
    """Check a worker: its tests, its example rows, and a rollout of each row through a small cluster.

    WORKER is a name (`gymq test mcqa`), a folder with worker.py, or a Python file. The files beside it are used:
    `tests/`, `data/example.jsonl`, `config.yaml`. A file with a verifier needs no configuration: `gymq test my_env.py
    --rows rows.jsonl`. The policy is a simulated model that gives the solutions in the rows. The exit status is 1 if
    anything fails.

    Args:
        worker: name, folder or file of the worker.
        rows: file with rows to check it with, as `gymq collect` reads it, instead of its own data/example.jsonl.
        prompt_field: field of the rows with the prompt, as for `gymq collect`.
        config: configuration to use instead of its own config.yaml; may be given several times.
        option: option of a worker that has no configuration, as `KEY=VALUE`; may be given several times.
        json: print the results as one JSON object.
    """
    if rows is not None and not rows.is_file():
        raise UsageError(f"--rows {rows}: file not found")
    source = replace(find_worker(worker), rows=rows)
    steps: list[Check] = []
    settings: Config | None = None
    try:
        settings = settings_of(source, config, option)
    except ConfigError as error:
        steps.append(Check("configuration", "failed", str(error)))
    steps += asyncio.run(check(source, settings, steps, prompt_field, quiet=json))
    failed = any(step.status == "failed" for step in steps)
    checked = any(step.status == "ok" for step in steps)
    if json:
        report = {"worker": source.name, "kind": source.kind, "ok": checked and not failed, "steps": steps}
        print(msgspec.json.encode(report).decode())
    elif not checked and not failed:
        print_prose(
            "nothing to check: it has neither tests nor example rows; `gymq test "
            f"{worker} --rows rows.jsonl` checks it with rows from elsewhere",
            sys.stdout,
        )
    return 1 if failed or not checked else 0


async def check(
    source: WorkerSource, settings: Config | None, before: list[Check], prompt_field: str | None, *, quiet: bool
) -> list[Check]:
    console = Console(quiet=quiet)
    console.print(printable(f"{source.name}: {source.kind} worker in {_shown_path(source.file)}"), soft_wrap=True)
    for step in before:
        _print(step, console)
    steps = []
    async for step in check_worker(source, settings, prompt_field):
        _print(step, console)
        steps.append(step)
    return steps


def _print(step: Check, console: Console) -> None:
    head = Text(f"  {step.name:{_NAME_WIDTH}}")
    status = Text(f"{'-' if step.status == 'none' else step.status:8}", style=STATUS_STYLES[step.status])
    console.print(head + status + printable(step.summary), soft_wrap=True)
    if not console.quiet:
        for detail in step.details:
            print_prose(textwrap.indent(detail, " " * 6), sys.stdout)


def settings_of(source: WorkerSource, config: tuple[Path, ...], option: tuple[str, ...]) -> Config | None:
    """Return the worker's configuration with a simulated policy, unless it brings a policy of its own."""
    read = partial(read_config, judge_hint=JUDGE_IN_CONFIG)
    paths = config or ((source.config,) if source.config is not None else ())
    if not paths and source.kind == "resources" and source.rows is not None:
        return read(WorkerSources(config=(SIMULATED_MODEL,), resources=source.file, option=option), [ALWAYS_RIGHT])
    if option:
        raise UsageError(
            "--option is for a verifier without a configuration, checked with --rows; otherwise use --config"
        )
    if not paths:
        return None
    try:
        return read(WorkerSources(config=(*paths, SIMULATED_MODEL)), [ALWAYS_RIGHT])
    except ConfigError as error:
        try:
            return read(WorkerSources(config=paths), [])
        except ConfigError:
            raise error from None


def _shown_path(file: Path) -> str:
    here = Path.cwd()
    return str(file.relative_to(here) if file.is_relative_to(here) else file)
