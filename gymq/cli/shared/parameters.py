"""Parameters that several commands have, with their help, and groups of parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter, Token, convert
from cyclopts.validators import Number

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
