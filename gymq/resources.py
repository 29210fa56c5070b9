"""Resources: an environment's tools, its state and its verifier, as an author writes them."""

from __future__ import annotations

import inspect
import json
import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, ParamSpec, Protocol, SupportsFloat, get_type_hints, overload

import pydantic
from typing_extensions import TypeVar

from gymq import responses
from gymq.authoring import Worker, first_problem
from gymq.failures import InvalidTask, JudgeFailed, RolloutError, ToolError
from gymq.processes import ComputeLimits, KillableProcesses


class Row(pydantic.BaseModel):
    """One line of a data set. Subclass it to name the fields the verifier needs; others are kept.

    Types are read leniently in one direction: numeric text is taken for a number, a number is not taken for text.
    """

    model_config = pydantic.ConfigDict(extra="allow")

    responses_create_params: dict[str, Any]

    @pydantic.field_validator("responses_create_params")
    @classmethod
    def _check_params(cls, params: dict[str, Any]) -> dict[str, Any]:
        return responses.validate_params(params, tool_names=True)


RowT = TypeVar("RowT", bound=Row, default=Row)
StateT = TypeVar("StateT", default=Any)
P = ParamSpec("P")
T = TypeVar("T")
RowT_co = TypeVar("RowT_co", bound=Row, default=Row, covariant=True)
StateT_co = TypeVar("StateT_co", default=Any, covariant=True)


@dataclass
class VerifyRequest(Generic[RowT_co, StateT_co]):
    """The input of a verifier."""

    row: RowT_co
    response: responses.Response  # of the whole rollout
    state: StateT_co | None = None  # the session's; None in one that was never seeded and never called

    @property
    def reply_text(self) -> str:
        """All output texts of all messages, joined with nothing in between."""
        return responses.output_text(self.response)

    @property
    def function_calls(self) -> list[responses.FunctionCall]:
        """The calls the model made, in order."""
        return responses.function_calls(self.response)


class Verdict:
    """A reward, and further fields of the verifier, which are stored in the result row."""

    __slots__ = ("fields", "reward")

    def __init__(self, reward: float, **fields: Any) -> None:
        if isinstance(reward, str | bytes):
            raise TypeError(f"a reward must be a number, not {reward!r:.80}")
        self.reward = float(reward)
        self.fields = fields

    @property
    def members(self) -> dict[str, Any]:
        """Return `fields` by their earlier name."""
        warnings.warn("Verdict.members is deprecated: use Verdict.fields", DeprecationWarning, stacklevel=2)
        return self.fields

    def __repr__(self) -> str:
        fields = "".join(f", {name}={value!r}" for name, value in self.fields.items())
        return f"Verdict(reward={self.reward}{fields})"


Judged = Verdict | SupportsFloat
"""What `verify` may return: a verdict, or a number that is the reward."""

Need = Literal["judge", "sandbox", "network"]  # a model to ask, a place to run a model's code, the internet


@dataclass(frozen=True)
class RowsWanted:
    """Rows that a class is asked to make.

    Attributes:
        count: how many.
        seed: the same seed gives the same rows, on any machine.
        tokens: how long each prompt may be, as `count_tokens` counts; None: as long as the class likes.
        kinds: names of the class's `row_kinds`, for the rows in turn.
        count_tokens: returns the tokens of a text.
    """

    count: int
    seed: int
    tokens: int | None
    kinds: tuple[str, ...]
    count_tokens: Callable[[str], int]


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
    offered: bool = True  # to rows that list no tools

    def schema(self) -> dict[str, Any]:
        """Return the tool as an element of `responses_create_params.tools`."""
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
        """Return the keyword arguments for the function.

        Raises:
            ToolError: 422; its message names the argument that is wrong.
        """
        if not self.arguments.model_fields:
            return {}
        try:
            parsed = self.arguments.model_validate({} if arguments is None else arguments)
        except pydantic.ValidationError as error:
            raise ToolError(422, first_problem(error)) from None
        return {field: getattr(parsed, field) for field in self.arguments.model_fields}


FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


@overload
def tool(function: FunctionT) -> FunctionT: ...


@overload
def tool(*, offered: bool) -> Callable[[FunctionT], FunctionT]: ...


def tool(function: FunctionT | None = None, *, offered: bool = True) -> FunctionT | Callable[[FunctionT], FunctionT]:
    """Offer a method of a Resources class to the model. The signature gives the JSON schema, the docstring the text.

    A parameter named `state` receives the session's state. A tool that is not `async` runs on the event loop and must
    return at once.

    Args:
        offered: whether a row that lists no tools offers it; False: it is there for rows that name it, and for agents
            that call it themselves.
    """

    def marked(function: FunctionT) -> FunctionT:
        function.__gymq_tool__ = True  # type: ignore[attr-defined]
        function.__gymq_offered__ = offered  # type: ignore[attr-defined]
        return function

    return marked if function is None else marked(function)


class Resources(Worker, Generic[RowT, StateT]):
    """Tools, state and verifier of one environment. `Resources[MyRow]` names the row type.

    Defining `open` makes it stateful: each rollout then has a session with a state of its own, which `verify` and tools
    receive. `Resources[MyRow, MyState]` names its type.

    Define `verify`, or `verify_in_process` for a verifier that computes for long.
    """

    reward_range: tuple[float, float] = (-math.inf, math.inf)  # a reward outside is an error of the verifier
    deterministic: ClassVar[bool] = True  # the same row and response always get the same reward
    needs: ClassVar[frozenset[Need]] = frozenset()

    row_type: ClassVar[type[Row]] = Row
    seed_row_type: ClassVar[type[Row]] = Row
    tools: ClassVar[dict[str, Tool]] = {}
    stateful: ClassVar[bool] = False
    replayable: ClassVar[bool] = False  # the same calls always lead to the same state and answers
    row_kinds: ClassVar[tuple[str, ...]] = ()  # of the rows that `make_rows` can make
    session_ttl_s: float = 900.0  # an idle session is closed after this many seconds
    max_sessions: int = 100_000  # in one process
    verify_timeout_s: float = 60.0  # for `verify_in_process`
    compute_limits: ComputeLimits = ComputeLimits(cpu_s=60.0, timeout_s=600.0)  # for `compute`

    models: ModelCaller  # set by the process that runs the worker
    processes: KillableProcesses  # set by the process that runs the worker; for computations that may take too long

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for base in getattr(cls, "__orig_bases__", ()):
            arguments = (argument for argument in getattr(base, "__args__", ()) if isinstance(argument, type))
            cls.row_type = next((argument for argument in arguments if issubclass(argument, Row)), cls.row_type)
        cls.stateful = cls.open is not Resources.open
        cls.seed_row_type = _seed_row_type_of(cls)
        cls.tools = cls.tools | {
            name: _tool_of(function)
            for name, function in vars(cls).items()
            if getattr(function, "__gymq_tool__", False)
        }

    def __getstate__(self) -> dict[str, Any]:
        """Return what a process gets to run `verify`: everything but connections and processes."""
        return {name: value for name, value in vars(self).items() if name not in ("models", "processes")}

    @classmethod
    def make_rows(cls, wanted: RowsWanted) -> Iterator[dict[str, Any]]:
        """Make rows, for `gymq data make`. Import what only this needs inside.

        Raises:
            OptionsError: there are no rows as they are wanted.
        """
        raise NotImplementedError

    async def verify(self, request: VerifyRequest[RowT, StateT]) -> Judged:
        """Score a response. It shares its event loop with all rollouts of the process, so it must not compute for long.

        Raises:
            InvalidTask: the row, or the response, does not fit.
            JudgeFailed: a judge gave no usable answer.
            ComponentFailed: a service did not answer.
        """
        return await self.processes.run(self.verify_timeout_s, self.verify_in_process, request)

    def verify_in_process(self, request: VerifyRequest[RowT, StateT]) -> Judged:
        """Score a response in a separate process, which is killed after `verify_timeout_s`.

        It gets copies: changes that it makes to the object or to the state stay in the process.
        """
        raise NotImplementedError

    async def compute(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function of a module in a separate process, within the class's `compute_limits`.

        Raises:
            CpuTimeUsedUp: it used up its processor time; the reply is to blame.
            MemoryError: it took too much memory; so is the reply.
            TimeoutError: the machine did not finish it in time; nothing is known about the reply.
            ChildProcessError: its process died; the same.
            Exception: any error that the function raised.
        """
        return await self.processes.compute(self.compute_limits, function, *args, **kwargs)

    async def open(self, row: Any) -> StateT:
        """Return the state of a new session. A class that defines it is stateful.

        Args:
            row: of the class's row type, or of the one that an override names in its signature: seeding then asks only
                for the fields of that type.
        """
        raise NotImplementedError

    async def open_unseeded(self) -> StateT:
        """Return the state of a session that is used before it was seeded. By default that is refused."""
        raise ToolError(400, "the session is not seeded")

    async def reseed(self, state: StateT, row: Any) -> StateT:
        """Return the state after a session was seeded again. By default the session starts over."""
        await awaited(self.close(state))
        opened: StateT = await awaited(self.open(row))
        return opened

    async def close(self, state: StateT) -> None:
        """Release what a session's state holds."""

    async def call_tool(self, state: StateT, name: str, arguments: Any) -> Any:
        """Run one tool. Override it to dispatch tools that are not methods.

        Args:
            state: the session's state; None for a stateless class.
            arguments: the parsed JSON the model wrote; None if it wrote `null`.

        Raises:
            ToolError: the call is refused; the model reads the message.
        """
        spec = self.tools.get(name)
        if spec is None:
            raise ToolError(404, f"there is no tool named {name!r}")
        keywords = spec.parse(arguments)
        if spec.takes_state:
            keywords["state"] = state
        return await awaited(spec.function(self, **keywords))

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
            raise JudgeFailed(f"{model}: {error.message}", curable=error.curable) from None

    def parse_row(self, row: bytes | dict[str, Any], row_type: type[Row] | None = None) -> Any:
        """Parse a row as the class's row type, or as another.

        Raises:
            InvalidTask: a field is not valid; the error names it.
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


Environment = Resources
"""Another name for it: a class of this kind is an environment."""


async def awaited(result: Any) -> Any:
    """Return the result of a method that may be `async` or not."""
    return await result if inspect.isawaitable(result) else result


def verify_takes_state(resources: Resources[Any, Any] | type[Resources[Any, Any]]) -> bool:
    """Return whether `verify` has the form `verify(request, state)`, which gymq 0.2 will not accept."""
    if not resources.stateful:
        return False
    arguments = ("request", "state") if isinstance(resources, Resources) else ("self", "request", "state")
    try:
        inspect.signature(resources.verify).bind(*arguments)
    except (TypeError, ValueError):
        return False
    return True


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
    """Return the row type in the signature of `open`, or the class's row type if it has none."""
    if resources.stateful:
        for hint in get_type_hints(resources.open).values():
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
        offered=getattr(function, "__gymq_offered__", True),
    )
