"""What agents, models and resources have in common for those who write them: a name, options, a life cycle."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NoReturn

import pydantic

from gymq.passed_environment import check_name


class WorkerOptions(pydantic.BaseModel):
    """Options every worker has. A worker adds its own in a nested `class Options(gymq.WorkerOptions)`.

    Members that only describe an instance, or that the HTTP bridge uses, are accepted so that existing
    configuration files load; an unknown member is an error.
    """

    model_config = pydantic.ConfigDict(extra="forbid", arbitrary_types_allowed=True)

    entrypoint: str | None = None
    domain: str | None = None
    description: str | None = None
    value: str | None = None
    verified: bool | None = None
    verified_url: str | None = None
    host: str | None = None
    port: int | None = None
    datasets: list[dict[str, Any]] | None = None
    num_workers: pydantic.PositiveInt = 1  # processes that serve this instance
    isolated: bool = False  # a process of its own, with a Python environment of its own
    # Environment variables for it, beside those that all of its kind are given; then it has a process of its own.
    pass_env: list[Annotated[str, pydantic.AfterValidator(check_name)]] = []
    max_concurrency: pydantic.PositiveInt | None = None  # calls at a time in one process; default: the worker's own


class Reference(pydantic.BaseModel):
    """Names another instance of the configuration."""

    model_config = pydantic.ConfigDict(extra="forbid")

    type: Literal["responses_api_models", "resources_servers", "responses_api_agents"]
    name: str


class OptionsError(ValueError):
    """Options that do not fit a worker; one sentence naming instance and key."""


class Worker:
    """Base of `Agent`, `Model` and `Resources`."""

    Options: ClassVar[type[WorkerOptions]] = WorkerOptions
    max_concurrency: ClassVar[int] = 1000

    options: Any  # an instance of the class's own Options

    def __init__(self, options: dict[str, Any] | WorkerOptions | None = None, *, name: str | None = None) -> None:
        """
        Args:
            options: members of `Options`, checked here.
            name: the instance's name in the configuration; default: the class's name.

        Raises:
            OptionsError: an option is missing, unknown or of the wrong type.
        """
        self.name = name or type(self).__name__
        try:
            self.options = options if isinstance(options, WorkerOptions) else self.Options(**(options or {}))
        except pydantic.ValidationError as error:
            raise OptionsError(f"{self.name}: {first_problem(error)}") from None

    async def start(self) -> None:
        """Called once before the first request: open connections, load data."""

    async def stop(self) -> None:
        """Called once after the last request."""


@dataclass(frozen=True)
class CurrentCall:
    """The call being handled: whose it is and when it must be answered."""

    rollout: str
    deadline: float  # on the event loop's clock, seconds


_NO_CALL = CurrentCall(rollout="-", deadline=float("inf"))
current_call: ContextVar[CurrentCall] = ContextVar("current_call", default=_NO_CALL)


def first_problem(error: pydantic.ValidationError) -> str:
    """The first problem of a validation as `path: what is wrong`."""
    problem = error.errors(include_url=False, include_context=False, include_input=False)[0]
    path = ".".join(str(step) for step in problem["loc"])
    message = problem["msg"].removeprefix("Value error, ")
    return f"{path}: {message}" if path else message


def not_implemented(worker: Worker, what: str) -> NoReturn:
    raise NotImplementedError(f"{type(worker).__name__} has no `{what}` method")
