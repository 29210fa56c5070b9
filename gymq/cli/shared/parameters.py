"""Parameters that several commands have, with their help, and groups of parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter, Token, convert
from cyclopts.validators import Number

from gymq.defaults import MAX_VERSIONS, PASS_THRESHOLD, TokenForm

DATA, WORKERS, MODEL, JUDGE, SAMPLING, LIMITS, OUTPUT = (
    Parameter(group=Group(name, sort_key=place))
    for place, name in enumerate(("Data", "Environment", "Model", "Judge", "Sampling", "Limits", "Output"))
)
"""Groups in the help of commands with many options, in the order in which they are shown."""


def _in_any_case(hint: Any, tokens: Sequence[Token]) -> Any:
    return convert(hint, [token.evolve(value=token.value.lower()) for token in tokens])


ConfigFiles = Annotated[tuple[Path, ...], Parameter(alias="-c", consume_multiple=False)]
SearchFolders = Annotated[tuple[Path, ...], Parameter(consume_multiple=False)]
Repeated = Annotated[tuple[str, ...], Parameter(consume_multiple=False)]  # `--option A=1 --option B=2`
Overrides = Annotated[
    str, Parameter(help="changes to the configuration, as `key=value`, `+key=value`, `++key=value` or `~key`.")
]
Share = Annotated[float | None, Parameter(validator=Number(gte=0.001, lte=1000))]
PriorityName = Literal["urgent", "normal", "background"]
LogLevel = Annotated[
    Literal["debug", "info", "warning", "error"],
    Parameter(help="least severe messages to log.", converter=_in_any_case),
]
Count = Annotated[int, Parameter(validator=Number(gte=1))]
Port = Annotated[int, Parameter(validator=Number(gte=1, lte=65535))]
OptionalIndex = Annotated[int | None, Parameter(validator=Number(gte=0))]
OptionalPort = Annotated[int | None, Parameter(validator=Number(gte=1, lte=65535))]
OptionalCount = Annotated[int | None, Parameter(validator=Number(gte=1))]

NatsUrl = Annotated[str | None, Parameter(env_var="GYMQ_NATS")]
ClusterUrl = Annotated[NatsUrl, Parameter(help="URL of the cluster; default: the one of this folder.")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class WorkerSources:
    """Where the workers of a command are described.

    Attributes:
        resources: Python file with a verifier, also as FILE.py:CLASS, to use it without any configuration.
        option: option of the worker in the Python file, as `KEY=VALUE`; may be given several times.
        config: configuration file; may be given several times.
        benchmark: name of a benchmark, `benchmarks/NAME/config.yaml`, as `gymq list benchmarks` prints them.
        search_dir: folder that has a folder `benchmarks`, such as a checkout of NeMo Gym; may be given several times.
        model_url: base URL of an OpenAI-compatible endpoint to use as the policy; its key is read from
            GYMQ_MODEL_API_KEY or OPENAI_API_KEY.
        model: name of the model at that endpoint.
        dialect: API of the endpoint at --model-url: `responses` or `chat`. Default: detected with the first request.
        judge_url: base URL of an OpenAI-compatible endpoint to use as the judge; its key is read from
            GYMQ_JUDGE_API_KEY or the variables of the policy. Without it the policy judges.
        judge_model: name of the model at that endpoint.
    """

    resources: Annotated[Path | None, WORKERS] = None
    option: Annotated[Repeated, WORKERS] = ()
    config: Annotated[ConfigFiles, WORKERS] = ()
    benchmark: Annotated[str | None, WORKERS] = None
    search_dir: Annotated[SearchFolders, WORKERS] = ()
    model_url: Annotated[str | None, MODEL] = None
    model: Annotated[str | None, MODEL] = None
    dialect: Annotated[Literal["responses", "chat"] | None, MODEL] = None
    judge_url: Annotated[str | None, JUDGE] = None
    judge_model: Annotated[str | None, JUDGE] = None


NOWHERE = WorkerSources()


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How the policy is sampled.

    Attributes:
        temperature: sampling temperature, instead of that of the rows.
        top_p: nucleus sampling, instead of that of the rows.
        max_tokens: maximum tokens of a reply, instead of that of the rows.
        sampling: another sampling parameter for all rollouts, as `KEY=VALUE`; may be given several times.
    """

    temperature: Annotated[float | None, SAMPLING] = None
    top_p: Annotated[float | None, SAMPLING] = None
    max_tokens: Annotated[int | None, SAMPLING] = None
    sampling: Annotated[Repeated, SAMPLING] = ()


OF_THE_ROWS = Sampling()


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
