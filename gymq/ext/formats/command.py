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
    from gymq.ext.formats.exporting import export_to_file, publish

    given = {"sft": sft, "dpo": dpo, "atif": atif, "verifiers": verifiers, "verifiers-traces": verifiers_traces}
    forms = [name for name, is_given in given.items() if is_given]
    if sum(target is not None for target in (output, wandb, mlflow)) != 1:
        raise UsageError("give one of --output FILE, --wandb PROJECT and --mlflow EXPERIMENT")
    if output is not None:
        return export_to_file(run, output, nats, forms, token_ids, min_reward)
    if forms:
        raise UsageError("--sft, --dpo, --atif, --verifiers and --verifiers-traces need --output FILE.jsonl")
    return publish(run, wandb, mlflow, nats)


EXPORT = Command("Read", "Export a run: JSONL, Parquet, training sets, W&B, MLflow.", "gymq.ext.formats.command:export")
