"""The work of `gymq export`."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from gymq.bus import Bus
from gymq.bus.queue.outcome_store import OutcomeStore
from gymq.cli.shared.cluster import connected, require_run, stored_url
from gymq.data.run_files import RunFiles
from gymq.defaults import TokenForm
from gymq.errors import UsageError
from gymq.execution.services.profiler import last_profile
from gymq.ext.formats.converted import ConvertedFile
from gymq.ext.formats.mlflow import MlflowRun
from gymq.ext.formats.run_report import RunReport
from gymq.ext.formats.table import RunTableFile
from gymq.ext.formats.training_sets import TrainingSet, TrainingSetFile
from gymq.ext.formats.trajectories import TrajectoryFile
from gymq.ext.formats.wandb import WandbRun
from gymq.ext.rollout_files.files import formats
from gymq.ext.rollout_files.run_export import RunExport
from gymq.protocol.messages import Outcome, Run
from gymq.redaction import environment_secrets, hide
from gymq.render import counted
from gymq.runs.stored_runs import Runs

PARQUET = ".parquet"
JSONL = ".jsonl"
Connect = Callable[[], WandbRun | MlflowRun]
FileT = TypeVar("FileT", bound=ConvertedFile)


def export_to_file(
    run: str, output: Path, nats: str | None, forms: Sequence[str], token_ids: TokenForm, min_reward: float
) -> int:
    """Export a run to a new file, in the form that an option names, or else as rollouts or as a table."""
    if output.suffix not in (PARQUET, JSONL):
        example = output.with_suffix(JSONL) if output.suffix and not output.is_dir() else output / f"{run}{JSONL}"
        raise UsageError(f"{output}: name a file that ends in {JSONL} or {PARQUET}, such as {example}")
    for file in (output, RunFiles(output).materialised):
        if file.exists():
            raise UsageError(f"{file} already exists: choose another --output")
    given = " and ".join(f"--{name}" for name in forms)
    if len(forms) > 1:
        raise UsageError(f"{given}: give one, not both; each needs an --output of its own")
    if forms and output.suffix != JSONL:
        raise UsageError(f"{output}: with {given} the name must end in {JSONL}")
    match forms:
        case []:
            return asyncio.run(export_file(run, output, nats, token_ids))
        case ["sft" | "dpo" as form]:
            return asyncio.run(export_training_set(run, output, nats, form, min_reward))
        case _:
            return asyncio.run(export_trajectories(run, output, nats, forms[0]))


async def export_file(run: str, output: Path, nats: str | None, token_ids: TokenForm) -> int:
    count = 0
    async with _stored(run, nats) as (_, outcomes):
        with RunTableFile(output) if output.suffix == PARQUET else RunExport(output, token_ids) as file:
            async for _, outcome in outcomes:
                file.add(outcome)
                count += 1
    print(f"{counted(count, 'outcome')} of {run} in {output}")
    return 0


async def export_training_set(run: str, output: Path, nats: str | None, form: TrainingSet, min_reward: float) -> int:
    made, why = "example", "masked or without a chat form"
    file = await _convert(run, output, nats, lambda: TrainingSetFile(output, form, min_reward), made, why)
    if not file.num_written:
        passed = f"{file.num_passed:,} of {counted(file.num_rewarded, 'reward')} at {min_reward:g} or more"
        needs = "an example needs one" if form == "sft" else "a pair needs one that is, and one of its task that is not"
        print(f"gymq: {passed}; {needs}, and --min-reward changes the limit", file=sys.stderr)
    return 0


async def export_trajectories(run: str, output: Path, nats: str | None, form: str) -> int:
    known = formats().get(form)
    write = None if known is None else known.write
    if write is None:
        raise UsageError(f"--{form}: no installed package writes this format")
    made, why = "rollout", "without such a form"
    await _convert(run, output, nats, lambda: TrajectoryFile(output, write), made, why)
    return 0


async def _convert(
    run: str, output: Path, nats: str | None, new_file: Callable[[], FileT], made: str, why_left_out: str
) -> FileT:
    count = 0
    async with _stored(run, nats) as (_, outcomes):
        with new_file() as file:
            async for _, outcome in outcomes:
                file.add(outcome)
                count += 1
    print(f"{counted(file.num_written, made)} of {counted(count, 'outcome')} of {run} in {output}")
    if file.num_left_out:
        print(f"gymq: {counted(file.num_left_out, 'rollout')} left out: {why_left_out}", file=sys.stderr)
    return file


def publish(run: str, wandb: str | None, mlflow: str | None, nats: str | None) -> int:
    """Send a run to a project of Weights & Biases or an experiment of MLflow, without anything that is secret here."""

    def connect() -> WandbRun | MlflowRun:
        return WandbRun(wandb, run) if wandb is not None else MlflowRun(str(mlflow), run)

    for secret in environment_secrets():
        hide(secret)
    with tempfile.TemporaryDirectory(prefix="gymq-export-") as folder:
        file = Path(folder) / "outcomes.parquet"
        target, report = asyncio.run(_read(run, connect, file, nats))
        where = target.send(report, file)
    if report.num_left_out:
        print(f"gymq: warning: {report.num_left_out} rewards are too large for statistics", file=sys.stderr)
    print(f"{report.num_outcomes:,} outcomes of {run} in {where}")
    return 0


async def _read(run: str, connect: Connect, file: Path, nats: str | None) -> tuple[WandbRun | MlflowRun, RunReport]:
    async with _stored(run, nats) as (bus, outcomes):
        target = connect()  # before a million outcomes are read for nothing
        record = await Runs(bus).record(run) or Run(run=run, created_at=0.0)
        report = RunReport(record, *await last_profile(bus.js, run))  # it knows of replaced failures, too
        with RunTableFile(file, redacted=True) as table:
            async for sequence, outcome in outcomes:
                report.add(sequence, outcome)
                table.add(outcome)
    return target, report


@asynccontextmanager
async def _stored(run: str, nats: str | None) -> AsyncIterator[tuple[Bus, AsyncIterator[tuple[int, Outcome]]]]:
    """Open the outcomes of a run while the block runs."""
    async with stored_url(nats) as url, connected(url, name="gymq export") as bus:
        outcomes = OutcomeStore(bus).read(run)
        first = await anext(outcomes, None)
        if first is None:
            await require_run(bus, run)
            raise UsageError(f"run {run} has no rollouts yet")

        async def all_of_them() -> AsyncIterator[tuple[int, Outcome]]:
            yield first
            async for one in outcomes:
                yield one

        yield bus, all_of_them()
