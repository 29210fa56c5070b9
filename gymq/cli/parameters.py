"""Parameters that several commands have."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

ConfigFiles = Annotated[tuple[Path, ...], Parameter(alias="-c", consume_multiple=False)]
Repeated = Annotated[tuple[str, ...], Parameter(consume_multiple=False)]  # `--option A=1 --option B=2`
NatsUrl = Annotated[str | None, Parameter(env_var="GYMQ_NATS")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class WorkerSources:
    """Where the workers of a command are described.

    Attributes:
        config: configuration file; may be given several times.
        resources: Python file with a verifier, to use it without any configuration.
        model_url: base URL of an OpenAI-compatible endpoint to use as the policy; its key is read from
            GYMQ_MODEL_API_KEY or OPENAI_API_KEY.
        model: name of the model at that endpoint.
        dialect: API of the endpoint at --model-url: `responses` or `chat`. Default: detected with the first request.
        judge_url: base URL of an OpenAI-compatible endpoint to use as the judge; its key is read from
            GYMQ_JUDGE_API_KEY or the variables of the policy. Without it the policy judges.
        judge_model: name of the model at that endpoint.
        option: option of the worker in the Python file, as `KEY=VALUE`; may be given several times.
    """

    config: ConfigFiles = ()
    resources: Path | None = None
    model_url: str | None = None
    model: str | None = None
    dialect: Literal["responses", "chat"] | None = None
    judge_url: str | None = None
    judge_model: str | None = None
    option: Repeated = ()


NOWHERE = WorkerSources()
