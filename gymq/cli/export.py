"""Define the command `gymq export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from gymq.cli.errors import UsageError
from gymq.cli.parameters import StreamsUrl
from gymq.defaults import PASS_THRESHOLD, TokenForm


def export(
    *,
    run: str,
    output: Annotated[Path | None, Parameter(alias="-o")] = None,
    token_ids: TokenForm = "full",
    sft: bool = False,
    dpo: bool = False,
    min_reward: float = PASS_THRESHOLD,
    wandb: str | None = None,
    mlflow: str | None = None,
    nats: StreamsUrl = None,
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
        min_reward: smallest reward of a rollout that passes, for --sft and --dpo.
        wandb: `PROJECT` or `ENTITY/PROJECT` of Weights & Biases to export to; a run that is already there is updated.
            wandb's own variables, such as WANDB_MODE and WANDB_API_KEY, apply.
        mlflow: experiment of MLflow to export to; a run that is already there is updated. MLFLOW_TRACKING_URI names the
            server.
    """
    import asyncio

    from gymq.cli.actions.export import JSONL, PARQUET, export_file, export_training_set, publish
    from gymq.runs.export.mlflow import MlflowRun
    from gymq.runs.export.wandb import WandbRun

    if sum(target is not None for target in (output, wandb, mlflow)) != 1:
        raise UsageError("give one of --output FILE, --wandb PROJECT and --mlflow EXPERIMENT")
    if (sft or dpo) and output is None:
        raise UsageError("--sft and --dpo need --output FILE.jsonl")
    if output is not None:
        if output.suffix not in (PARQUET, JSONL):
            raise UsageError(f"{output}: the name must end in {PARQUET} or {JSONL}")
        if output.exists():
            raise UsageError(f"{output} already exists")
        if sft or dpo:
            if (sft and dpo) or output.suffix != JSONL:
                raise UsageError(f"give --sft or --dpo, not both, with an --output that ends in {JSONL}")
            return asyncio.run(export_training_set(run, output, nats, "sft" if sft else "dpo", min_reward))
        return asyncio.run(export_file(run, output, nats, token_ids))
    if wandb is not None:
        return publish(run, lambda: WandbRun(wandb, run), nats)
    if mlflow is not None:
        return publish(run, lambda: MlflowRun(mlflow, run), nats)
    return 0
