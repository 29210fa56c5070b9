"""Define the command `gymq export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from gymq.cli.shared.command import Command
from gymq.cli.shared.parameters import ClusterUrl
from gymq.defaults import PASS_THRESHOLD, TokenForm
from gymq.errors import UsageError


def export(
    *,
    run: str,
    output: Annotated[Path | None, Parameter(alias="-o")] = None,
    token_ids: TokenForm = "full",
    sft: bool = False,
    dpo: bool = False,
    atif: bool = False,
    verifiers: bool = False,
    verifiers_traces: bool = False,
    min_reward: float = PASS_THRESHOLD,
    wandb: str | None = None,
    mlflow: str | None = None,
    nats: ClusterUrl = None,
) -> int:
    """Export a stored run: as JSONL files, a table, a training set, to Weights & Biases or to MLflow.

    Reads from the cluster running in this folder or at --nats, otherwise from the store in this folder.

    Args:
        run: the run, as `gymq rollouts` lists it.
        output: a name that ends in `.jsonl` (rollouts with a reward; the rows are written beside it, as by a
            collection) or in `.parquet` (all outcomes with their tokens; `datasets.load_dataset("parquet",
            data_files=FILE)` reads it). The file must not exist yet.
        token_ids: token ids in a `.jsonl` file: `full` as NeMo Gym writes them, each item with its whole prompt;
            `chain` with what is new in each prompt; `none`.
        sft: write the rollouts that pass to a `.jsonl` file for supervised fine-tuning: chat `messages`, and `tools`.
        dpo: write pairs of rollouts of the same task, one that passes and one that does not, to a `.jsonl` file:
            `prompt`, `chosen` and `rejected`.
        atif: write the rollouts with a reward to a `.jsonl` file as trajectories in ATIF, one per line.
        verifiers: write them as verifiers up to 0.2 saves its results.
        verifiers_traces: write them as verifiers 0.4 saves its episodes, in `traces.jsonl`.
        min_reward: smallest reward of a rollout that passes, for --sft and --dpo.
        wandb: `PROJECT` or `ENTITY/PROJECT` of Weights & Biases to export to; a run that is already there is updated.
            wandb's own variables, such as WANDB_MODE and WANDB_API_KEY, apply.
        mlflow: experiment of MLflow to export to; a run that is already there is updated. MLFLOW_TRACKING_URI names the
            server.
    """
    import asyncio

    from gymq.data.run_files import RunFiles
    from gymq.ext.formats.exporting import (
        JSONL,
        PARQUET,
        export_file,
        export_training_set,
        export_trajectories,
        publish,
    )
    from gymq.ext.formats.mlflow import MlflowRun
    from gymq.ext.formats.wandb import WandbRun

    if sum(target is not None for target in (output, wandb, mlflow)) != 1:
        raise UsageError("give one of --output FILE, --wandb PROJECT and --mlflow EXPERIMENT")
    trajectories = {
        "atif": atif,
        "verifiers": verifiers,
        "verifiers-traces": verifiers_traces,
    }
    trajectory = next((form for form, given in trajectories.items() if given), None)
    training_sets = {"sft": sft, "dpo": dpo}
    forms = [name for one in (training_sets, trajectories) for name, given in one.items() if given]
    if forms and output is None:
        raise UsageError("--sft, --dpo, --atif, --verifiers and --verifiers-traces need --output FILE.jsonl")
    if output is not None:
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
        if trajectory is not None:
            return asyncio.run(export_trajectories(run, output, nats, trajectory))
        if sft or dpo:
            return asyncio.run(export_training_set(run, output, nats, "sft" if sft else "dpo", min_reward))
        return asyncio.run(export_file(run, output, nats, token_ids))
    if wandb is not None:
        return publish(run, lambda: WandbRun(wandb, run), nats)
    if mlflow is not None:
        return publish(run, lambda: MlflowRun(mlflow, run), nats)
    return 0


EXPORT = Command("Read", "Export a run: JSONL, Parquet, training sets, W&B, MLflow.", "gymq.ext.formats.command:export")
