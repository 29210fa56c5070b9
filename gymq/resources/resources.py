"""Resources: the base class of environments, with tools, state and verifier."""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Generic, Literal, ParamSpec, Protocol, get_type_hints

import pydantic
from typing_extensions import TypeVar

from gymq import responses
from gymq.authoring import Worker, first_problem
from gymq.failures import InvalidTask, JudgeFailed, RolloutError, ToolError, no_such_tool
from gymq.processes import ComputeLimits, KillableProcesses
from gymq.resources.judge_calls import recorded_calls
from gymq.resources.row import Row, RowsWanted, RowT
from gymq.resources.tools import Tool, tool_of
from gymq.resources.verdict import Judged, VerifyRequest

StateT = TypeVar("StateT", default=Any)
P = ParamSpec("P")
T = TypeVar("T")

Need = Literal["judge", "sandbox", "network"]  # a judge model, a sandbox for code of models, the internet


class ModelCaller(Protocol):
    """Asks a model worker, by the instance's name."""

    async def respond(self, model: str, params: dict[str, Any]) -> dict[str, Any]: ...


class Resources(Worker, Generic[RowT, StateT]):
    """Tools, state and verifier of one environment. `Resources[MyRow]` names the row type.

    Defining `open` makes it stateful: each rollout then has a session with its own state, which `verify` and tools
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
    played_by: ClassVar[str] = "simple_agent"  # agent to use if no configuration names one
    row_kinds: ClassVar[tuple[str, ...]] = ()  # of the rows that `make_rows` can make
    session_ttl_s: float = 3600.0  # an idle session is closed after this many seconds; a model call may take 1,200
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
            name: tool_of(function) for name, function in vars(cls).items() if getattr(function, "__gymq_tool__", False)
        }

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a process that runs `verify`: all attributes except connections and processes."""
        return {name: value for name, value in vars(self).items() if name not in ("models", "processes")}

    @classmethod
    def make_rows(cls, wanted: RowsWanted) -> Iterator[dict[str, Any]]:
        """Make rows, for `gymq data make`. Import modules that only this method needs inside it.

        Raises:
            OptionsError: such rows cannot be made.
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

        Args:
            function: one that can be pickled, as its arguments and its result can.
            args, kwargs: its arguments.

        Raises:
            CpuTimeUsedUp: it used up its processor time; the reply is to blame.
            MemoryError: it used too much memory; the reply is to blame.
            TimeoutError: it did not finish in time; the reply may be fine.
            ChildProcessError: its process died; the reply may be fine.
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
        """Return the state of a session that is used before it is seeded. By default such calls are refused."""
        raise ToolError(400, "the session is not seeded")

    async def reseed(self, state: StateT, row: Any) -> StateT:
        """Return the state after a session is seeded again. By default the session starts over.

        Args:
            state: the previous state.
            row: as in `open`.
        """
        await self.close(state)
        return await self.open(row)

    async def close(self, state: StateT) -> None:
        """Release the resources of a session's state."""

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
            raise no_such_tool(name)
        keywords = spec.parse(arguments)
        if spec.takes_state:
            keywords["state"] = state
        return await awaited(spec.function(self, **keywords))

    async def ask(self, model: str, params: dict[str, Any]) -> dict[str, Any]:
        """Ask a model worker, for example a judge; the reply is a Responses object.

        The calls of a verification are recorded in its verdict, see `gymq.resources.judge_calls`.

        Args:
            model: the model instance's name in the configuration.
            params: parameters of a Responses request.

        Raises:
            JudgeFailed: it could not be asked.
        """
        if not hasattr(self, "models"):
            raise JudgeFailed(f"{self.name} runs where no model can be asked")
        started = time.monotonic()
        try:
            response = await self.models.respond(model, params)
        except RolloutError as error:
            raise JudgeFailed(f"{model}: {error.message}", curable=error.curable) from None
        if (calls := recorded_calls.get()) is not None:
            calls.add(model, params, response, time.monotonic() - started)
        return response

    def parse_row(self, row: bytes | dict[str, Any], row_type: type[Row] | None = None) -> Any:
        """Parse a row.

        Args:
            row: its JSON text, or an object.
            row_type: its type; None: the class's row type.

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
"""Alias of `Resources`."""


async def awaited(result: Any) -> Any:
    """Return the result of a method that may be `async` or not."""
    return await result if inspect.isawaitable(result) else result


def _seed_row_type_of(resources: type[Resources[Any]]) -> type[Row]:
    """Return the row type in the signature of `open`, else the class's row type."""
    if resources.stateful:
        for hint in get_type_hints(resources.open).values():
            if isinstance(hint, type) and issubclass(hint, Row):
                return hint
    return resources.row_type
