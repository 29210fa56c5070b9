"""Define the command `gymq profile`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from gymq.cli.shared.command import Command
from gymq.cli.shared.parameters import ClusterUrl, OptionalIndex
from gymq.defaults import PASS_THRESHOLD
from gymq.errors import UsageError


def profile(
    file: Path | None = None,
    /,
    *,
    rows: Path | None = None,
    run: str | None = None,
    live: bool = False,
    task: OptionalIndex = None,
    output: Annotated[Path | None, Parameter(alias="-o")] = None,
    k: str | None = None,
    pass_threshold: float = PASS_THRESHOLD,
    nats: ClusterUrl = None,
    json: bool = False,
) -> int:
    """Show the statistics of a run: mean reward and pass@k with intervals, the verifier's numbers, tokens.

    FILE computes them from the files of a run, without a cluster; --run reads them from a cluster, or from the store in
    this folder.

    Args:
        file: rollouts of a run, as `gymq collect` wrote them; the other files of the run are read beside it.
        rows: materialised rows of FILE, JSONL, where they are not beside it.
        run: the run, as `gymq rollouts` lists it.
        live: show the live statistics of the running cluster, refreshed until the run is complete.
        task: only this task of the run.
        output: write the statistics as files `OUTPUT_statistics.json`, `OUTPUT_reward_profiling.jsonl` and
            `OUTPUT_agent_metrics.json`.
        k: show pass@k for these k, for example `1,8,64`.
        pass_threshold: smallest reward that counts as a pass in pass@k.
        json: print the statistics as one JSON object.
    """
    import asyncio

    from gymq.ext.rollouts.profiling import profile_live, profile_run, read_ks, report_at
    from gymq.ext.shared.printed_statistics import profile_files

    ks = read_ks(k)
    if file is not None and run is None:
        if live or task is not None:
            raise UsageError("--live and --task need --run")
        return profile_files(file, rows, None if output is None else report_at(output), ks, pass_threshold, json)
    if run is None or file is not None:
        raise UsageError("give one of FILE, the rollouts of a run, and --run RUN; `gymq rollouts` lists the runs")
    if rows is not None:
        raise UsageError("--rows are those of FILE: leave it out with --run")
    if live:
        if task is not None or output is not None:
            raise UsageError("--live shows whole runs and writes no files: leave out --task and --output")
        if pass_threshold != PASS_THRESHOLD:
            raise UsageError("--live shows what the cluster counts, with a threshold of 1: leave out --pass-threshold")
        return profile_live(run, ks, nats, json)
    return asyncio.run(profile_run(run, task, output, ks, pass_threshold, nats, json))


PROFILE = Command("Read", "Show the statistics of a run.", "gymq.ext.rollouts.profile:profile")
