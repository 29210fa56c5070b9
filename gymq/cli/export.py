"""gymq export"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from gymq.bus import Bus
from gymq.cli.cluster import connected, stored_url
from gymq.cli.errors import Refused, told_plainly
from gymq.export_mlflow import MlflowRun
from gymq.export_wandb import WandbRun
from gymq.jetstream import JetStream
from gymq.messages import Outcome, Run
from gymq.outcome_store import OutcomeStore
from gymq.profiler import last_profile
from gymq.redaction import hide, names_secret
from gymq.run_export import RunExport
from gymq.run_report import ExportError, RunReport
from gymq.run_table_file import RunTableFile, TableError
from gymq.running import RunningProfile
from gymq.runs import Runs

PARQUET = ".parquet"
JSONL = ".jsonl"

Connect = Callable[[], WandbRun | MlflowRun]


def export(
    *,
    run: str,
    output: Annotated[Path | None, Parameter(alias="-o")] = None,
    wandb: str | None = None,
    mlflow: str | None = None,
    nats: Annotated[str | None, Parameter(env_var="GYMQ_NATS")] = None,
) -> int:
    """Hand on a stored run: as JSONL files, as one Parquet table, to Weights & Biases or to MLflow.

    Reads from the cluster that runs in this folder or at --nats; if there is none, from what is stored in this folder.

    Args:
        run: the run, as `gymq rollouts` lists it.
        output: a name that ends in `.jsonl` (rollouts with a reward; the rows are put beside it, as a collection does)
            or in `.parquet` (all outcomes with their tokens; `datasets.load_dataset("parquet", data_files=FILE)` reads
            it). The file must not be there yet.
        wandb: `PROJECT` or `ENTITY/PROJECT` of Weights & Biases that gets the run, or has it and gets what is new;
            wandb's own variables, such as WANDB_MODE and WANDB_API_KEY, hold.
        mlflow: the experiment of MLflow that gets the run, or has it and gets what is new; MLFLOW_TRACKING_URI says
            where.
        nats: URL of a NATS server with the streams of gymq.
    """
    with told_plainly():
        if sum(target is not None for target in (output, wandb, mlflow)) != 1:
            raise Refused("give one of --output FILE, --wandb PROJECT and --mlflow EXPERIMENT")
        try:
            if output is not None:
                if output.suffix not in (PARQUET, JSONL):
                    raise Refused(f"{output}: the name must end in {PARQUET} or {JSONL}")
                if output.exists():
                    raise Refused(f"{output} is there already")
                return asyncio.run(_export(run, output, nats))
            if wandb is not None:
                return _publish(run, lambda: WandbRun(wandb, run), nats)
            if mlflow is not None:
                return _publish(run, lambda: MlflowRun(mlflow, run), nats)
        except (ExportError, TableError) as error:
            raise Refused(str(error)) from None
    return 0


async def _export(run: str, output: Path, nats: str | None) -> int:
    count = 0
    async with _stored(run, nats) as (_, outcomes):
        with RunTableFile(output) if output.suffix == PARQUET else RunExport(output) as file:
            async for _, outcome in outcomes:
                file.add(outcome)
                count += 1
    print(f"{count:,} outcomes of {run} in {output}")
    return 0


def _publish(run: str, connect: Connect, nats: str | None) -> int:
    """Send a run somewhere else, with nothing in it that is a secret here."""
    for name, value in os.environ.items():
        if names_secret(name):
            hide(value)
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
        report = RunReport(record, *await _profile(bus, run))
        with RunTableFile(file, redacted=True) as table:
            async for sequence, outcome in outcomes:
                report.add(sequence, outcome)
                table.add(outcome)
    return target, report


async def _profile(bus: Bus, run: str) -> tuple[RunningProfile, int]:
    """The profiler's last checkpoint, which also knows of failures that were replaced; else nothing to go on from."""
    try:
        return await last_profile(JetStream(bus), run)
    except ValueError:
        return RunningProfile(), 0


@asynccontextmanager
async def _stored(run: str, nats: str | None) -> AsyncIterator[tuple[Bus, AsyncIterator[tuple[int, Outcome]]]]:
    """The outcomes of a run, which must have some."""
    async with stored_url(nats) as url, connected(url, name="gymq export") as bus:
        outcomes = OutcomeStore(bus).read(run)
        first = await anext(outcomes, None)
        if first is None:
            raise Refused(f"run {run} has no rollouts; `gymq rollouts` lists the runs")

        async def all_of_them() -> AsyncIterator[tuple[int, Outcome]]:
            yield first
            async for one in outcomes:
                yield one

        yield bus, all_of_them()
