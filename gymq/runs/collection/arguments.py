"""The arguments of `gymq.collect`, turned into a configuration and rows."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from pathlib import Path
from typing import Any

import msgspec
import pydantic

from gymq import responses
from gymq.authoring import Worker, first_problem
from gymq.config import Config, load
from gymq.config.assembled import (
    POLICY,
    POLICY_KEYS,
    endpoint,
    first_set,
    instance,
    load_with_policy,
    policy_values,
)
from gymq.config.assembled import environment as environment_with_agent
from gymq.config.sampling import check_sampling
from gymq.data.materialise import MaterialiseOptions
from gymq.execution.loading.contract import check_contract
from gymq.execution.loading.worker_options import model_fields
from gymq.execution.loading.worker_source import find_worker
from gymq.model import Model, ModelRequest
from gymq.resources import Resources
from gymq.runs.collection.options import IN_PYTHON, default_output

_ENVIRONMENTS = "an environment is a class, a worker's name, a Python file, or configuration files"

Answer = Callable[[dict[str, Any]], Any]
ModelArgument = str | Path | Mapping[str, Any] | Answer | type[Model] | None
EnvironmentArgument = type[Resources[Any]] | str | Path | Sequence[str | Path]


class FunctionModel(Model):
    """Answers with a Python function, `answer(params)`, async or not."""

    def __init__(self, answer: Answer, *, name: str) -> None:
        super().__init__(name=name)
        self._answer = answer

    async def respond(self, request: ModelRequest) -> dict[str, Any]:
        """Return what the function returns, a text as a message.

        Raises:
            TypeError: it returned neither a text nor a Responses object.
        """
        answer = self._answer(dict(request.params))
        if inspect.isawaitable(answer):
            answer = await answer
        if isinstance(answer, str):
            return _message(answer)
        if not isinstance(answer, dict):
            raise TypeError(f"the function returned {type(answer).__name__}; it must return a text or a response")
        return answer


def _message(text: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    item = {"id": "msg_0", "type": "message", "role": "assistant", "status": "completed", "content": content}
    return responses.response_without_model("function", [item])


@dataclass
class Setup:
    """The workers of one run.

    Attributes:
        made: workers that run in this process, by the names of their instances.
        name: name of the environment or file, from which the run's name is made.
        is_simulated: whether the policy is the simulated model because there is no other.
        score_with: options that name its files to `gymq score`; empty for a class.
    """

    name: str
    config: Config
    made: dict[str, Worker] = field(default_factory=dict)
    is_simulated: bool = False
    score_with: list[str] = field(default_factory=list)


def read_setup(
    environment: EnvironmentArgument,
    *,
    model: ModelArgument = None,
    model_name: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Setup:
    """Return the workers for an environment and a model.

    Args:
        environment: a class, the name of a worker, a Python file, or one or several configuration files.
        model: the policy: the URL of an endpoint, the name or file of a model worker, an instance as in a
            configuration, a function, or a class; None: that of the configuration, or else `simulated_model`.
        model_name: name of the model at the endpoint.
        options: options of the environment.

    Raises:
        InvalidWorker, OptionsError: the class does not fulfil its contract, or an option is invalid.
        WorkerNotFound, ConfigError: there is no such worker, or the configuration is wrong.
        TypeError: an argument is of a type that is not listed here.
    """
    found = _of_class(environment, options) if inspect.isclass(environment) else _of_files(environment, options)
    policy, worker = _policy(model, model_name)
    if worker is not None:
        found.made[POLICY] = worker
    if policy is not None:
        overrides = [f"++{POLICY}=null", f"++{POLICY}={json.dumps(policy)}", *_values(policy)]
        settings = load(found.paths, overrides, initial=found.initial)
        return Setup(found.name, settings, found.made, score_with=found.score_with)
    settings, simulated = load_with_policy(found.paths, initial=found.initial)
    return Setup(found.name, settings, found.made, is_simulated=bool(simulated), score_with=found.score_with)


@dataclass
class _Environment:
    """An environment as it was named: its workers so far, and the configuration files beside them."""

    name: str
    initial: dict[str, Any] = field(default_factory=dict)
    paths: list[str] = field(default_factory=list)
    made: dict[str, Worker] = field(default_factory=dict)
    score_with: list[str] = field(default_factory=list)


def _of_class(environment: type[Any], options: Mapping[str, Any] | None) -> _Environment:
    if not issubclass(environment, Resources):
        raise TypeError(f"{environment.__name__} is not derived from gymq.Resources")
    check_contract(environment)
    name = environment.__name__
    options = _judged_by_policy(environment) | dict(options or {})
    implementation = f"{environment.__module__}.{environment.__qualname__}"
    initial = environment_with_agent(name, implementation, options, agent=environment.played_by)
    return _Environment(name, initial, made={name: environment(options, name=name)})


def _of_files(environment: Any, options: Mapping[str, Any] | None) -> _Environment:
    if not isinstance(environment, str | Path | Sequence):
        raise TypeError(f"{_ENVIRONMENTS}, not {type(environment).__name__}")
    files = [environment] if isinstance(environment, str | Path) else list(environment)
    paths = [str(file) for file in files]
    if all(path.endswith((".yaml", ".yml")) for path in paths):
        name = "-".join(Path(path).parent.name if Path(path).stem == "config" else Path(path).stem for path in paths)
    elif len(paths) == 1:
        source = find_worker(paths[0], ["resources"])
        if source.config is None:
            assert issubclass(source.cls, Resources)
            options = _judged_by_policy(source.cls) | dict(options or {})
            initial = environment_with_agent(source.name, source.implementation, options, agent=source.cls.played_by)
            return _Environment(source.name, initial, score_with=["--resources", source.implementation])
        name, paths = source.name, [str(source.config)]
    else:
        raise TypeError(_ENVIRONMENTS)
    if options:
        raise TypeError("options belong to a class or a Python file; a configuration has its own")
    return _Environment(name, paths=paths, score_with=[word for path in paths for word in ("--config", path)])


def _judged_by_policy(environment: type[Worker]) -> dict[str, Any]:
    """Return the options that make the policy the judge of an environment that requires one."""
    policy = {"type": "responses_api_models", "name": POLICY}
    return {name: policy for name, is_required in model_fields(environment) if is_required}


def _policy(model: ModelArgument, model_name: str | None) -> tuple[dict[str, Any] | None, Worker | None]:
    """Return the policy's instance, and the worker itself if it runs in this process."""
    is_url = isinstance(model, str) and model.startswith(("http://", "https://"))
    if model_name is not None and not is_url:
        raise TypeError("model_name needs model, the URL of an endpoint that serves it")
    if model is None:
        return None, None
    if isinstance(model, str) and is_url:
        if model_name is None:
            raise TypeError("the URL of an endpoint needs model_name, the name it knows the model by")
        return endpoint(model, model_name, first_set(POLICY_KEYS)), None
    if isinstance(model, str | Path):
        return instance("responses_api_models", find_worker(str(model), ["models"]).implementation), None
    if isinstance(model, Mapping):
        return dict(model), None
    if inspect.isclass(model) and issubclass(model, Model):
        check_contract(model)
        return instance("responses_api_models", model.__qualname__), model(name=POLICY)
    if callable(model):
        name = getattr(model, "__qualname__", type(model).__qualname__)
        return instance("responses_api_models", name), FunctionModel(model, name=POLICY)
    raise TypeError(f"a model is a URL, a worker, an instance, a class or a function, not {type(model).__name__}")


def _values(policy: dict[str, Any]) -> list[str]:
    """Return overrides for configurations that name the endpoint by values of their own."""
    options = policy.get("responses_api_models", {}).get("openai_model") or {}
    return [f"++{name}={json.dumps(value)}" for name, value in policy_values(options).items()]


def write_rows(rows: Iterable[Any], file: Path) -> Path:
    """Write rows to a file of JSONL, and return it.

    Raises:
        TypeError: these are no rows.
        ValueError: a row has no form in JSON; names its position.
    """
    if not isinstance(rows, Iterable):
        raise TypeError(f"rows are dicts, a data frame or the name of a file, not {type(rows).__name__}")
    lines = []
    for number, row in enumerate(_records(rows) if hasattr(rows, "iterrows") else rows):
        if not isinstance(row, Mapping):
            raise ValueError(f"rows[{number}]: a row is a dict, not {type(row).__name__}")
        try:
            lines.append(msgspec.json.encode(dict(row), enc_hook=_plain))
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"rows[{number}]: {error}") from None
    if not lines:
        raise ValueError("rows: there are none")
    file.write_bytes(b"".join(line + b"\n" for line in lines))
    return file


def _records(frame: Any) -> Iterator[dict[str, Any]]:
    """Yield the rows of a data frame of pandas, without the fields that they have only because others have them."""
    for row in frame.astype(object).where(frame.notna(), None).to_dict("records"):
        yield {name: value for name, value in row.items() if value is not None}


def _plain(value: Any) -> Any:
    """Return the plain value of a NumPy scalar or array."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a value of type {type(value).__name__} has no form in JSON")


def materialise_options(
    setup: Setup, repeats: int, limit: int | None, sampling: Mapping[str, Any] | None, prompt_field: str | None
) -> MaterialiseOptions:
    """Return how rows are made for the only agent of a setup.

    Raises:
        ValueError, ConfigError: an argument cannot be used; names it.
    """
    try:
        return MaterialiseOptions(
            agent_name=setup.config.only_agent,
            num_repeats=whole_number("repeats", repeats),
            limit=None if limit is None else whole_number("limit", limit),
            responses_create_params=check_sampling(sampling or {}),
            prompt_field=prompt_field,
        )
    except pydantic.ValidationError as error:
        raise ValueError(first_problem(error).replace("num_repeats", IN_PYTHON.num_repeats, 1)) from None


def output_of(setup: Setup, rows: Any, model: ModelArgument, model_name: str | None) -> Path:
    """Return the output of a call that names none."""
    name = Path(rows) if isinstance(rows, str | Path) else Path("rows")
    policy = model_name or getattr(model, "__name__", None) or (model if isinstance(model, str) else None)
    return default_output(name, [], Path(setup.name), policy)


def whole_number(name: str, value: Any) -> int:
    """Return an argument that is a whole number, which may be one of NumPy."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise ValueError(f"{name}: must be a whole number of at least 1, not {value!r}")
    return int(value)


def seconds(name: str, value: Any) -> float:
    """Return an argument that is a number of seconds, which may be one of NumPy."""
    if not hasattr(value, "__float__"):
        raise ValueError(f"{name}: must be a number of seconds, not {value!r}")
    return float(value)
