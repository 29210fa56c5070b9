"""gymq export"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from gymq.cli.cluster import connected, stored_url
from gymq.cli.errors import Refused, told_plainly
from gymq.outcome_store import OutcomeStore
from gymq.run_export import RunExport
from gymq.run_table_file import RunTableFile, TableError

PARQUET = ".parquet"
JSONL = ".jsonl"


def export(
    *,
    run: str,
    output: Annotated[Path, Parameter(alias="-o")],
    nats: Annotated[str | None, Parameter(env_var="GYMQ_NATS")] = None,
) -> int:
    """Write a stored run into files: the JSONL files of a collection, or one Parquet table.

    Reads from the cluster that runs in this folder or at --nats; if there is none, from what is stored in this folder.

    Args:
        run: the run, as `gymq rollouts` lists it.
        output: a name that ends in `.jsonl` (rollouts with a reward; the rows are put beside it, as a collection does)
            or in `.parquet` (all outcomes with their tokens; `datasets.load_dataset("parquet", data_files=FILE)` reads
            it). The file must not be there yet.
        nats: URL of a NATS server with the streams of gymq.
    """
    with told_plainly():
        if output.suffix not in (PARQUET, JSONL):
            raise Refused(f"{output}: the name must end in {PARQUET} or {JSONL}")
        if output.exists():
            raise Refused(f"{output} is there already")
        try:
            return asyncio.run(_export(run, output, nats))
        except TableError as error:
            raise Refused(str(error)) from None


async def _export(run: str, output: Path, nats: str | None) -> int:
    async with stored_url(nats) as url, connected(url, name="gymq export") as bus:
        outcomes = OutcomeStore(bus).read(run)
        first = await anext(outcomes, None)
        if first is None:
            raise Refused(f"run {run} has no rollouts; `gymq rollouts` lists the runs")
        count = 1
        with RunTableFile(output) if output.suffix == PARQUET else RunExport(output) as file:
            file.add(first[1])
            async for _, outcome in outcomes:
                file.add(outcome)
                count += 1
    print(f"{count:,} outcomes of {run} in {output}")
    return 0
