"""Define the command `gymq profile`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from gymq.cli.shared.errors import UsageError
from gymq.cli.shared.parameters import OptionalIndex, StreamsUrl
from gymq.defaults import PASS_THRESHOLD


def profile(
    *,
    run: str | None = None,
    live: bool = False,
    task: OptionalIndex = None,
    input: Annotated[Path | None, Parameter(alias="-i")] = None,
    rollouts: Path | None = None,
    allow_partial: bool = False,
    output: Annotated[Path | None, Parameter(alias="-o")] = None,
    k: str | None = None,
    pass_threshold: float = PASS_THRESHOLD,
    nats: StreamsUrl = None,
    json: bool = False,
) -> int:
    """Show the statistics of a run: mean reward and pass@k with intervals, the verifier's numbers, tokens.

    --run reads them from a cluster, or from the store in this folder; --input and --rollouts compute them from the
    files of a run, without a cluster.

    Args:
        run: the run, as `gymq rollouts` lists it.
        live: show the live statistics of the running cluster, refreshed until the run is complete.
        task: only this task of the run.
        input: materialised rows of a run, JSONL (`..._materialized_inputs.jsonl`).
        rollouts: rollouts of the same run, JSONL.
        allow_partial: accept rows of --input that have no rollout yet.
        output: write the statistics as files `OUTPUT_reward_profiling.jsonl` and `OUTPUT_agent_metrics.json`; with
            --input the default is beside the rollouts.
        k: show pass@k for these k, for example `1,8,64`.
        pass_threshold: smallest reward that counts as a pass in pass@k.
        json: print the statistics as one JSON object.
    """
    import asyncio

    from gymq.cli.actions.profile import profile_files, profile_live, profile_run, read_ks

    ks = read_ks(k)
    if run is not None and (input is not None or rollouts is not None):
        raise UsageError("--run and --input exclude each other: a run is read from a cluster or from its files")
    if run is None:
        if input is None or rollouts is None:
            raise UsageError("give --run RUN, or both --input ROWS.jsonl and --rollouts ROLLOUTS.jsonl")
        if live or task is not None:
            raise UsageError("--live and --task need --run")
        return profile_files(input, rollouts, allow_partial, output, ks, pass_threshold, json)
    if live:
        if task is not None or output is not None:
            raise UsageError("--live shows whole runs and writes no files: leave out --task and --output")
        if pass_threshold != PASS_THRESHOLD:
            raise UsageError("--live shows what the cluster counts, with a threshold of 1: leave out --pass-threshold")
        return profile_live(run, ks, nats, json)
    return asyncio.run(profile_run(run, task, output, ks, pass_threshold, nats, json))
