"""Resources: an environment's tools, its state and its verifier, as an author writes them."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar, get_type_hints

import pydantic

from gymq import responses
from gymq.authoring import Worker, first_problem, not_implemented
from gymq.outcomes import InvalidTask, JudgeFailed, RolloutError, ToolError
from gymq.processes import KillableProcesses


class Row(pydantic.BaseModel):
    """One line of a data set. Subclass it to name the members the verifier needs; others are kept.

    Types are read leniently in one direction: numeric text is taken for a number, a number is not taken for text.
    """

    model_config = pydantic.ConfigDict(extra="allow")

    responses_create_params: dict[str, Any]

    @pydantic.field_validator("responses_create_params")
    @classmethod
    def _check_params(cls, params: dict[str, Any]) -> dict[str, Any]:
        return responses.validate_params(params)


RowT = TypeVar("RowT", bound=Row)


@dataclass
class VerifyRequest(Generic[RowT]):
    """What a verifier decides on."""

    row: RowT
    response: dict[str, Any]  # Responses object of the whole rollout

    @property
    def reply_text(self) -> str:
        """All output texts of all messages, joined with nothing in between."""
        return responses.output_text(self.response)

    @property
    def function_calls(self) -> list[dict[str, Any]]:
        """The calls the model made, in order."""
        return responses.function_calls(self.response)


class Verdict:
    """A reward, and what else the verifier wants to say; the further members end up in the result row."""

    __slots__ = ("members", "reward")

    def __init__(self, reward: float, **members: Any) -> None:
        if isinstance(reward, str | bytes):
            raise TypeError(f"a reward is a number, not {reward!r:.80}")
        self.reward = float(reward)
        self.members = members

    def __repr__(self) -> str:
        return f"Verdict(reward={self.reward}, **{self.members!r})"


Need = Literal["judge", "sandbox", "network"]  # a model to ask, a place to run a model's code, the internet


class ModelCaller(Protocol):
    """Asks a model worker, by the instance's name."""

    async def respond(self, model: str, params: dict[str, Any]) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Tool:
    """One tool of a Resources class."""

    name: str
    function: Callable[..., Any]
    takes_state: bool
    arguments: type[pydantic.BaseModel]

    def schema(self) -> dict[str, Any]:
        """The tool as a member of `responses_create_params.tools`."""
        parameters = self.arguments.model_json_schema()
        parameters.pop("title", None)
        for member in parameters.get("properties", {}).values():
            member.pop("title", None)
        parameters.setdefault("properties", {})
        parameters.setdefault("required", [])
        parameters["additionalProperties"] = False
        description = inspect.getdoc(self.function) or ""
        return {
            "type": "function",
            "name": self.name,
            "description": description,
            "parameters": parameters,
            "strict": True,
        }

    def parse(self, arguments: Any) -> dict[str, Any]:
        """Keyword arguments for the function.

        Raises:
            ToolError: 422, telling the model which argument is wrong.
        """
        if not self.arguments.model_fields:
            return {}
        try:
            parsed = self.arguments.model_validate({} if arguments is None else arguments)
        except pydantic.ValidationError as error:
            raise ToolError(422, first_problem(error)) from None
        return {field: getattr(parsed, field) for field in self.arguments.model_fields}


FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


def tool(function: FunctionT) -> FunctionT:
    """Offers a method of a Resources class to the model. The signature gives the JSON schema, the docstring the text.

    A parameter named `state` receives the session's state. A tool that is not `async` runs on the event loop and must
    return at once.
    """
    function.__gymq_tool__ = True  # type: ignore[attr-defined]
    return function


class Resources(Worker, Generic[RowT]):
    """Tools, state and verifier of one environment. `Resources[MyRow]` names the row type.

    Defining `open` makes it stateful: each rollout then has a session with a state of its own, and `verify` and tools
    receive it. A `verify` that is not `async` runs in a separate process that is killed at the time limit, so it may
    compute as much as it likes.

    `open` may name a row type of its own in its signature: seeding then asks only for the members of that type.
    """

    reward_range: ClassVar[tuple[float, float]] = (-math.inf, math.inf)  # a reward outside is an error of the verifier
    deterministic: ClassVar[bool] = True  # the same row and response always get the same reward
    needs: ClassVar[frozenset[Need]] = frozenset()

    row_type: ClassVar[type[Row]] = Row
    seed_row_type: ClassVar[type[Row]] = Row
    tools: ClassVar[dict[str, Tool]] = {}
    stateful: ClassVar[bool] = False
    replayable: ClassVar[bool] = False  # the same calls always lead to the same state and answers
    session_ttl_s: ClassVar[float] = 900.0  # an idle session is closed after this many seconds
    max_sessions: ClassVar[int] = 100_000  # in one process
    verify_timeout_s: ClassVar[float] = 60.0  # for a `verify` in a process

    models: ModelCaller  # set by whoever runs the worker
    processes: KillableProcesses  # set by whoever runs the worker; for computations that may take too long

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for base in getattr(cls, "__orig_bases__", ()):
            for argument in getattr(base, "__args__", ()):
                if isinstance(argument, type) and issubclass(argument, Row):
                    cls.row_type = argument
        cls.stateful = hasattr(cls, "open")
        cls.seed_row_type = _seed_row_type_of(cls)
        cls.tools = cls.tools | {
            name: _tool_of(function)
            for name, function in vars(cls).items()
            if getattr(function, "__gymq_tool__", False)
        }

    def __getstate__(self) -> dict[str, Any]:
        """What a process gets to run `verify`: everything but connections and processes."""
        return {name: value for name, value in vars(self).items() if name not in ("models", "processes")}

    async def verify(self, request: VerifyRequest[Any], *state: Any) -> Verdict:
        """Score a response. Stateful classes take the session's state as second argument."""
        not_implemented(self, "verify")

    def open_unseeded(self) -> Any:
        """State of a session that is used before it was seeded. By default that is refused."""
        raise ToolError(400, "the session is not seeded")

    def reseed(self, state: Any, row: Row) -> Any:
        """State after a session was seeded again. By default it starts afresh."""
        return self._start_afresh(state, row)

    async def _start_afresh(self, state: Any, row: Row) -> Any:
        closed = self.close(state)  # type: ignore[func-returns-value]
        if inspect.isawaitable(closed):
            await closed
        opened = self.open(row)  # type: ignore[attr-defined]
        return await opened if inspect.isawaitable(opened) else opened

    def close(self, state: Any) -> None:
        """Give back what a session's state holds. May be async."""

    async def call_tool(self, state: Any, name: str, arguments: Any) -> Any:
        """Run one tool. Override it to dispatch tools that are not methods.

        Args:
            state: the session's state; None for a stateless class.
            arguments: the parsed JSON the model wrote; None if it wrote `null`.

        Raises:
            ToolError: the model is told.
        """
        spec = self.tools.get(name)
        if spec is None:
            raise ToolError(404, f"there is no tool named {name!r}")
        keywords = spec.parse(arguments)
        if spec.takes_state:
            keywords["state"] = state
        result = spec.function(self, **keywords)
        return await result if inspect.isawaitable(result) else result

    async def ask(self, model: str, params: dict[str, Any]) -> dict[str, Any]:
        """Ask a model worker, for example a judge; the reply is a Responses object.

        Args:
            model: the model instance's name in the configuration.
            params: parameters of a Responses request.

        Raises:
            JudgeFailed: it could not be asked.
        """
        if not hasattr(self, "models"):
            raise JudgeFailed(f"{self.name} runs where no model can be asked")
        try:
            return await self.models.respond(model, params)
        except RolloutError as error:
            raise JudgeFailed(f"{model}: {error.message}") from None

    def parse_row(self, row: bytes | dict[str, Any], row_type: type[Row] | None = None) -> Any:
        """The row in the class's row type, or in another.

        Raises:
            InvalidTask: naming the member that does not fit.
        """
        row_type = row_type or self.row_type
        try:
            if isinstance(row, bytes):
                return row_type.model_validate_json(row)
            return row_type.model_validate(row)
        except pydantic.ValidationError as error:
            raise InvalidTask(f"row does not fit {self.name}: {first_problem(error)}") from None
        except responses.InvalidRequest as error:
            raise InvalidTask(f"row does not fit {self.name}: responses_create_params.{error}") from None


def tool_output(result: Any) -> str:
    """Return what the model reads: text as it is, anything else as JSON without blanks, as NeMo Gym writes it."""
    if isinstance(result, str):
        text = result
    elif isinstance(result, pydantic.BaseModel):
        text = result.model_dump_json()
    else:
        text = json.dumps(result, ensure_ascii=False, separators=(",", ":"))
    # Arguments of a model can hold half of a surrogate pair, which no message can carry.
    return text.encode(errors="replace").decode()


def _seed_row_type_of(resources: type[Resources[Any]]) -> type[Row]:
    """The type that the signature of `open` gives its row; the class's row type if it gives none."""
    if resources.stateful:
        for hint in get_type_hints(resources.open).values():  # type: ignore[attr-defined]
            if isinstance(hint, type) and issubclass(hint, Row):
                return hint
    return resources.row_type


def _tool_of(function: Callable[..., Any]) -> Tool:
    hints = get_type_hints(function, include_extras=True)
    fields: dict[str, Any] = {}
    parameters = list(inspect.signature(function).parameters.values())[1:]
    for parameter in parameters:
        if parameter.name != "state":
            default = ... if parameter.default is parameter.empty else parameter.default
            fields[parameter.name] = (hints.get(parameter.name, Any), default)
    return Tool(
        name=function.__name__,
        function=function,
        takes_state=any(parameter.name == "state" for parameter in parameters),
        arguments=pydantic.create_model(f"{function.__name__}_arguments", **fields),
    )
