"""Define the command `gymq collect`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from gymq.cli.shared.parameters import (
    DATA,
    LIMITS,
    NOWHERE,
    OF_THE_ROWS,
    OUTPUT,
    SAMPLING,
    WORKERS,
    LogLevel,
    NatsUrl,
    OptionalCount,
    PriorityName,
    Sampling,
    Share,
    WorkerSources,
)
from gymq.defaults import MAX_VERSIONS, PASS_THRESHOLD, TokenForm


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class CollectArguments:
    """The options of `gymq collect`.

    Attributes:
        rows: rows to roll out: a file in JSONL, Parquet, Arrow, CSV or TSV, a JSON array, a folder of files, or a data
            set of the Hugging Face Hub as `hf:OWNER/NAME[/CONFIGURATION][@REVISION][:SPLIT]`.
        dataset: name or type of a `datasets` block of the configuration, instead of --rows; with its prompt and
            repeats. Default with --benchmark: the block of the type benchmark.
        limit: number of rows to use, from the start of --rows.
        prompt_field: field of the rows with the prompt, a text or a list of messages. Default: the first of `prompt`,
            `question`, `input` and `messages` that a row without `responses_create_params.input` has.
        prompt_config: YAML file with the templates `user` and `system` for rows without a prompt; `{field}` is a field
            of the row.
        strict_rows: refuse the whole input if a row cannot be used; otherwise each such row becomes a failure with file
            and line.
        agent: agent instance for rows that name none; not needed if the configuration has only one.
        num_repeats: rollouts per row. Default: that of --dataset, or 1.
        num_repeats_add_seed: give each repeat its own seed, in `metadata.extra_body`.
        concurrency: maximum number of rollouts in flight. Default: `num_samples_in_parallel` of the configuration, or
            1,024.
        share: share of the workers, relative to other runs of the same priority, 1 by default; `gymq retune` changes
            it.
        priority: `urgent` runs get the next free slot, `background` runs what others leave; `gymq retune` changes it.
            Without a value: `urgent`.
        timeout: seconds a rollout may take.
        max_staleness: maximum number of policy updates (`gymq weights push`) between the first reply of a rollout and
            its end; a rollout that exceeds it is started over, up to four times in all. This favours short rollouts:
            a task that takes longer than so many updates has no result.
        max_failures: stop when more rollouts fail than this number, or this share of all, such as `5%`. Default: stop
            when the first 32 fail for one reason, or any 32 in a row because the configuration is wrong.
        nats: URL of a cluster to join.
        output: file for the rollouts, JSONL; the other files of the run are written beside it. Default: a file in
            `runs` named after the configuration or verifier, the rows and the model, so that the same command resumes
            the run.
        overwrite: delete the files and stored rollouts of an earlier run with this output.
        token_ids: token ids in the files: `full` as NeMo Gym writes them, each item with its whole prompt, so that a
            file grows with the square of the turns; `chain` with what is new in each prompt; `none`.
        pass_threshold: smallest reward that counts as a pass in the printed pass@k.
        json: print statistics, tokens, duration and failures as one JSON object.
    """

    rows: Annotated[Path | None, DATA, Parameter(alias="--input")] = None
    dataset: Annotated[str | None, DATA] = None
    limit: Annotated[OptionalCount, DATA] = None
    prompt_field: Annotated[str | None, DATA] = None
    prompt_config: Annotated[Path | None, DATA] = None
    strict_rows: Annotated[bool, DATA] = False
    sources: WorkerSources = NOWHERE
    agent: Annotated[str | None, WORKERS] = None
    num_repeats: Annotated[OptionalCount, SAMPLING] = None
    num_repeats_add_seed: Annotated[bool, SAMPLING] = False
    sampling: Sampling = OF_THE_ROWS
    concurrency: Annotated[OptionalCount, LIMITS] = None
    share: Annotated[Share, LIMITS] = None
    priority: Annotated[bool | PriorityName | None, LIMITS, Parameter(metavar="CHOICE")] = None
    timeout: Annotated[float, LIMITS] = 3600.0
    max_staleness: Annotated[int | None, LIMITS, Parameter(validator=Number(gte=0, lte=MAX_VERSIONS))] = None
    max_failures: Annotated[str | None, LIMITS] = None
    nats: Annotated[NatsUrl, LIMITS] = None
    output: Annotated[Path | None, OUTPUT, Parameter(alias="-o")] = None
    overwrite: Annotated[bool, OUTPUT] = False
    token_ids: Annotated[TokenForm, OUTPUT] = "full"
    pass_threshold: Annotated[float, OUTPUT] = PASS_THRESHOLD
    json: Annotated[bool, OUTPUT] = False
    log_level: Annotated[LogLevel, OUTPUT] = "info"


DEFAULTS = CollectArguments()


def collect(*overrides: str, options: CollectArguments = DEFAULTS) -> int:
    """Roll out a data set: rows in, verified rollouts and pass@k out.

    Joins the cluster running in this folder or at --nats, or starts a temporary one. Run the same command again to
    resume an interrupted collection.

    Args:
        overrides: changes to the configuration, as `key=value`, `+key=value`, `++key=value` or `~key`; those of
            `responses_create_params` set sampling parameters.
    """
    from gymq.cli.actions.collect import collect_rollouts

    return collect_rollouts(overrides, options)
