"""The work of `gymq test`."""

from __future__ import annotations

import sys
import textwrap
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.text import Text

from gymq.cli.shared.configuration import JUDGE_IN_CONFIG, read_config
from gymq.cli.shared.parameters import WorkerSources
from gymq.config import Config, ConfigError
from gymq.config.assembled import POLICY
from gymq.errors import UsageError
from gymq.execution.loading.worker_source import WorkerSource
from gymq.ext.shared.checks import Check
from gymq.ext.shared.rendering import STATUS_STYLES
from gymq.ext.workbench.worker_check import check_worker
from gymq.render import print_prose, printable

SIMULATED_MODEL = Path("workers/models/simulated_model/config.yaml")
# Rows may bring a solution for it to play.
ALWAYS_RIGHT = f"++{POLICY}.responses_api_models.simulated_model.skill=1.0"


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
    head = Text(f"  {step.name:17}")
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
