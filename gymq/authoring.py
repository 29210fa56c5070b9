"""The common base of agents, models and resources for their authors: a name, options, a life cycle."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Protocol, TypeVar, get_args

import pydantic
from pydantic_core import ErrorDetails

from gymq.errors import GymqError, did_you_mean
from gymq.processes.passed_environment import check_name
from gymq.protocol.instances import ServerType
from gymq.protocol.messages import Priority
from gymq.redaction import may_name_secret

VariableName = Annotated[str, pydantic.AfterValidator(check_name)]
"""The name of an environment variable that may be passed to a worker, as an option."""

PackageName = Annotated[str, pydantic.StringConstraints(pattern=r"^[A-Za-z0-9][^\n]*$", max_length=200)]
"""What pip is asked to install, such as `name==1.0`, as an option; never an option of pip."""


_ENTRYPOINT_OF_NEMO_GYM = re.compile(r"(?:[A-Za-z0-9_]{1,64}_)?app\.py")


class WorkerOptions(pydantic.BaseModel):
    """Options every worker has. A worker adds its own in a nested `class Options(gymq.WorkerOptions)`.

    Fields that only describe an instance, or that the HTTP bridge uses, are accepted so that existing
    configuration files load; an unknown field is an error, except in a configuration of NeMo Gym (see `ignored`).

    Attributes:
        without_meaning: names of options that existing configuration files have and nothing here reads; they are
            dropped.
    """

    model_config = pydantic.ConfigDict(extra="forbid", arbitrary_types_allowed=True)

    without_meaning: ClassVar[frozenset[str]] = frozenset({"allowed_agents"})

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
    # A process of its own, with a Python environment of its own; a list names packages that it has besides.
    isolated: bool | list[PackageName] = False
    # Environment variables for it, beside those that all of its kind are given; then it has a process of its own.
    pass_env: list[VariableName] = []
    max_concurrency: pydantic.PositiveInt | None = None  # calls at a time in one process; default: the worker's own

    @pydantic.model_validator(mode="before")
    @classmethod
    def _drop_what_has_no_meaning(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        ignored = cls.ignored(given)
        return {name: given[name] for name in given if name not in ignored}

    @classmethod
    def ignored(cls, given: Mapping[str, Any]) -> frozenset[str]:
        """Return the names of those options that are dropped.

        They are the ones without meaning, and in a configuration of NeMo Gym, whose entry points are `app.py` and
        `*_app.py`, all that the worker does not have.
        """
        dropped = given.keys() & cls.without_meaning
        entrypoint = given.get("entrypoint")
        if isinstance(entrypoint, str) and _ENTRYPOINT_OF_NEMO_GYM.fullmatch(entrypoint):
            dropped |= given.keys() - _names_of_options(cls)
        return frozenset(dropped)


def _names_of_options(options: type[WorkerOptions]) -> set[str]:
    """Return the names under which options can be given."""
    names = set(options.model_fields)
    for option in options.model_fields.values():
        alias = option.validation_alias
        choices = alias.choices if isinstance(alias, pydantic.AliasChoices) else [alias]
        names.update(choice for choice in choices if isinstance(choice, str))
    return names


class Reference(pydantic.BaseModel):
    """Names another instance of the configuration."""

    model_config = pydantic.ConfigDict(extra="forbid")

    type: ServerType
    name: str


class OptionsError(GymqError, ValueError):
    """Options that do not fit a worker; one sentence naming instance and key.

    Attributes:
        path: keys and list indices from the options to the one that does not fit.
    """

    def __init__(self, message: str, path: tuple[str | int, ...] = ()) -> None:
        super().__init__(message)
        self.path = path


def check_installed(extra: str, *modules: str) -> None:
    """Check that the libraries of an extra of gymq can be imported, without importing them.

    Raises:
        OptionsError: one cannot.
    """
    for module in modules:
        if importlib.util.find_spec(module) is None:
            raise OptionsError(_not_installed(module, extra))


@contextmanager
def importing(extra: str) -> Iterator[None]:
    """Import what the libraries of an extra of gymq are needed for within.

    Raises:
        OptionsError: one is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise OptionsError(f"{_not_installed(str(error.name), extra)}, or set `isolated`") from None


def _not_installed(module: str, extra: str) -> str:
    return f'{module.replace("_", "-")} is not installed: pip install "gymq[{extra}]"'


OptionsT_co = TypeVar("OptionsT_co", bound=WorkerOptions, covariant=True)


class HasOptions(Protocol[OptionsT_co]):
    """A worker as a type checker sees it to find the type of its options: that of its nested class `Options`."""

    @property
    def Options(self) -> type[OptionsT_co]: ...


class Worker:
    """Base of `Agent`, `Model` and `Resources`."""

    Options: type[WorkerOptions] = WorkerOptions
    max_concurrency: int = 1000  # calls at a time in one process, unless the option of this name says otherwise

    def __init__(self, options: dict[str, Any] | WorkerOptions | None = None, *, name: str | None = None) -> None:
        """Check the options and name the instance.

        Args:
            options: fields of `Options`, checked here.
            name: the instance's name in the configuration; default: the class's name.

        Raises:
            OptionsError: an option is missing, unknown or of the wrong type.
        """
        self.name = name or type(self).__name__
        try:
            self._options = options if isinstance(options, WorkerOptions) else self.Options(**(options or {}))
        except pydantic.ValidationError as error:
            path = error.errors(include_url=False, include_context=False, include_input=False)[0]["loc"]
            raise OptionsError(f"{self.name}: {first_problem(error, self.Options)}", path) from None

    @property
    def options(self: HasOptions[OptionsT_co]) -> OptionsT_co:
        """The instance's options, an object of the class's own `Options`."""
        options: OptionsT_co = self._options  # type: ignore[attr-defined]
        return options

    @options.setter
    def options(self, options: WorkerOptions) -> None:
        self._options = options

    async def start(self) -> None:
        """Prepare for the first request: open connections, load data. Called once, before it."""

    async def stop(self) -> None:
        """Release what `start` opened. Called once, after the last request."""


@dataclass
class Precedence:
    """Which of the calls that wait for the same worker is taken first. A change applies to later calls."""

    priority: Priority = Priority.NORMAL
    share: float = 1.0  # of the worker, relative to other runs of the same class


@dataclass(frozen=True)
class CurrentCall:
    """The call being handled: whose it is, when it must be answered, and which place its own calls take."""

    rollout: str
    deadline: float  # on the event loop's clock, seconds
    precedence: Precedence = field(default_factory=Precedence)


_NO_CALL = CurrentCall(rollout="-", deadline=float("inf"))
current_call: ContextVar[CurrentCall] = ContextVar("current_call", default=_NO_CALL)


# Plain words by pydantic's name of the problem; its own do for the others.
_PLAIN = {
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "dict_type": "must be a mapping",
    "extra_forbidden": "unknown field",
    "finite_number": "must be a finite number",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "int_from_float": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "list_type": "must be a list",
    "missing": "missing",
    "model_attributes_type": "must be a mapping",
    "model_type": "must be a mapping",
    "string_type": "must be text",
}


def first_problem(error: pydantic.ValidationError, options: type[pydantic.BaseModel] | None = None) -> str:
    """Return the first problem of a validation as `path: what is wrong`.

    Args:
        error: what pydantic found.
        options: the model that was validated, where its fields are options that a person sets: an unknown one is then
            answered with the nearest known one.
    """
    problem = error.errors(include_url=False, include_context=False)[0]
    path = ".".join(str(step) for step in problem["loc"])
    if options is not None and problem["type"] == "missing":
        return f"option {path} is missing"
    if options is not None and problem["type"] == "extra_forbidden":
        return f"no option {path}{did_you_mean(str(problem['loc'][-1]), _sibling_names(options, problem['loc']))}"
    plain = in_plain_words(problem)
    return f"{path}: {plain}" if path else plain


def in_plain_words(problem: ErrorDetails) -> str:
    """Return what is wrong with a value, without its path; the value is shown if it is short and may not be secret."""
    plain = _PLAIN.get(problem["type"]) or problem["msg"].removeprefix("Value error, ")
    plain = plain.replace("Input should be", "must be")
    value = problem["input"]
    is_short = isinstance(value, int | float) or (isinstance(value, str) and len(value) <= 60)
    is_secret = any(may_name_secret(str(step)) for step in problem["loc"])
    return f"{plain}, not {value!r}" if plain.startswith("must be") and is_short and not is_secret else plain


def _sibling_names(model: type[pydantic.BaseModel], path: Sequence[str | int]) -> list[str]:
    """Return the fields of the model that the last step of a path belongs to; none where it cannot be found."""
    found: Any = model
    for step in path[:-1]:
        if isinstance(step, int):
            continue  # the model of a list's items stands in the annotation of the list
        field = found.model_fields.get(step)
        found = None if field is None else next(_models_in(field.annotation), None)
        if found is None:
            return []
    return list(found.model_fields)


def _models_in(annotation: Any) -> Iterator[type[pydantic.BaseModel]]:
    """Yield the models that an annotation such as `list[Server] | None` mentions."""
    if isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models_in(part)
