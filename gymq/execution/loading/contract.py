"""The contract of a worker's class, checked when it is loaded.

Its methods must exist, accept the arguments they are given, and return a usable type. Only signatures and annotations
are read; none of the author's code runs.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Union, get_args, get_origin, get_type_hints

import pydantic

from gymq.agent import RESERVED_TOOL_NAMES, Agent
from gymq.authoring import Worker
from gymq.errors import GymqError
from gymq.model import Model
from gymq.resources import Resources, Tool, Verdict
from gymq.resources.asking_environment import AskingEnvironment
from gymq.resources.text_environment import TextEnvironment

_VERDICTS = "a gymq.Verdict, or a float, int or bool as the reward"


class WorkerNotFound(GymqError, ValueError):
    """No such worker; one sentence naming where was looked."""


class InvalidWorker(WorkerNotFound):
    """A class that was found and cannot work; one sentence with file and line."""


def check_contract(worker: type[Worker]) -> None:
    """Check that a class has the methods of its kind, and that they can be called as they will be.

    Raises:
        InvalidWorker: naming file, line and what would be right.
    """
    _check_methods(worker, {"start": (), "stop": ()}, must_be_async=True)
    if issubclass(worker, Resources):
        _check_resources(worker)
    elif issubclass(worker, Agent):
        if worker.run is Agent.run and worker.converse is Agent.converse:
            raise _broken(worker, "has neither `async def converse(self, rollout, session)` nor `run(self, rollout)`")
        _check_methods(worker, {"run": ("rollout",), "converse": ("rollout", "session")}, must_be_async=True)
    elif issubclass(worker, Model):
        if worker.respond is Model.respond:
            raise _broken(worker, "has no `async def respond(self, request)`, which answers a request")
        _check_methods(worker, {"respond": ("request",)}, must_be_async=True)


def _check_resources(worker: type[Resources[Any]]) -> None:
    verify, in_process = worker.verify, worker.verify_in_process
    if verify is Resources.verify and in_process is Resources.verify_in_process:
        text = "has no verifier: define `async def verify(self, request)`, or `def verify_in_process(self, request)`"
        raise _broken(worker, text)
    if issubclass(worker, TextEnvironment):
        episode = {"reset": ("row",), "step": ("action",)}
        for name, (argument,) in episode.items():
            if not _is_of_author(worker, name):
                raise _broken(worker, f"has no `{name}(self, {argument})`, which a gymq.TextEnvironment must define")
        _check_methods(worker, episode)
    if issubclass(worker, AskingEnvironment):
        if not _is_of_author(worker, "play"):
            raise _broken(
                worker, "has no `async def play(self, row, policy)`, which a gymq.AskingEnvironment must define"
            )
        _check_methods(worker, {"play": ("row", "policy")}, must_be_async=True)
    if worker.stateful:
        session = {"open": ("row",), "open_unseeded": (), "reseed": ("state", "row"), "close": ("state",)}
        _check_methods(worker, session, "it has `open`, so it keeps a state", must_be_async=True)
    _check_methods(worker, {"verify": ("request",)}, "the state is `request.state`" if worker.stateful else "")
    if not inspect.iscoroutinefunction(inspect.unwrap(verify)):
        raise _broken_at(verify, f"{worker.__name__}.verify must be `async`, or be called `verify_in_process`")
    _check_methods(worker, {"verify_in_process": ("request",)})
    if inspect.iscoroutinefunction(in_process):
        raise _broken_at(in_process, f"{worker.__name__}.verify_in_process must be `def`, without `async`")
    _check_methods(worker, {"call_tool": ("state", "name", "arguments")}, must_be_async=True)
    for name in ("verify", "verify_in_process"):
        _check_verdict(worker, name)
    for tool in worker.tools.values():
        _check_tool(worker, tool)


def _check_methods(
    worker: type[Worker], methods: Mapping[str, tuple[str, ...]], why: str = "", *, must_be_async: bool = False
) -> None:
    """Check the methods that an author has defined: what each is given after `self`, and whether it is a coroutine."""
    for name, arguments in methods.items():
        function = inspect.unwrap(getattr(worker, name))
        if not _is_of_author(worker, name) or not inspect.isroutine(function):
            continue
        right = f"({', '.join(('self', *arguments))})"
        takes = _takes(worker, name)
        if takes is not None and not _accepts(takes, arguments):
            because = f": {why}" if why else ""
            wanted = f"{worker.__name__}.{name} must take {right}, but it takes {_shown(takes)}{because}"
            raise _broken_at(function, wanted)
        if must_be_async and not inspect.iscoroutinefunction(function):
            raise _broken_at(function, f"{worker.__name__}.{name} must be `async def {name}{right}`")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise _broken_at(function, f"{worker.__name__}.{name} must return its result, but it holds a `yield`")


def _is_of_author(worker: type[Worker], name: str) -> bool:
    """Return whether a method is not that of gymq's own base classes."""
    return not any(name in vars(base) and vars(base)[name] is inspect.getattr_static(worker, name) for base in _BASES)


_BASES: tuple[type, ...] = (Worker, Resources, AskingEnvironment, TextEnvironment, Agent, Model)


def _takes(worker: type[Worker], name: str) -> inspect.Signature | None:
    """Return the signature of a method as it is called on an object; None if it has none that can be read."""
    method = inspect.getattr_static(worker, name)
    try:
        signature = inspect.signature(getattr(worker, name))
    except (TypeError, ValueError):
        return None
    if isinstance(method, staticmethod | classmethod):
        return signature
    parameters = list(signature.parameters.values())
    if parameters and parameters[0].kind is not inspect.Parameter.VAR_POSITIONAL:
        return signature.replace(parameters=parameters[1:])
    return signature


def _accepts(signature: inspect.Signature, arguments: tuple[str, ...]) -> bool:
    try:
        signature.bind(*arguments)
    except TypeError:
        return False
    return True


def _shown(signature: inspect.Signature) -> str:
    return f"({', '.join(['self', *map(_parameter, signature.parameters.values())])})"


def _parameter(parameter: inspect.Parameter) -> str:
    shown = str(parameter.replace(annotation=parameter.empty, default=parameter.empty))  # with the stars it may have
    return shown if parameter.default is parameter.empty else f"{shown}=..."


def _check_verdict(worker: type[Resources[Any]], method: str) -> None:
    function = inspect.unwrap(getattr(worker, method))
    hint = _hints(function).get("return", Any)
    wrong = next(_no_verdicts(hint), None)
    if wrong is not None:
        name = getattr(wrong, "__name__", str(wrong))
        raise _broken_at(function, f"{worker.__name__}.{method} returns {name}, but it must return {_VERDICTS}")


def _no_verdicts(hint: Any) -> Iterator[Any]:
    """Yield the types in a return annotation that are surely no verdict."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        for argument in arguments:
            yield from _no_verdicts(argument)
    elif origin in (Awaitable, Coroutine):
        yield from _no_verdicts(arguments[-1])
    elif origin in (Annotated, ClassVar, Final):
        yield from _no_verdicts(arguments[0])
    elif inspect.isclass(origin or hint):
        returned = origin or hint
        usable = issubclass(returned, Verdict) or (hasattr(returned, "__float__") and not issubclass(returned, str))
        if returned not in (Any, object) and not usable:
            yield hint


def _check_tool(worker: type[Resources[Any]], tool: Tool) -> None:
    function = inspect.unwrap(tool.function)
    name = f"{worker.__name__}.{tool.name}"
    if tool.name in RESERVED_TOOL_NAMES:
        raise _broken_at(function, f"{name} is a tool with a name that no model can call: choose another")
    for parameter in list(inspect.signature(function).parameters.values())[1:]:
        named = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        if not named and parameter.name in tool.arguments.model_fields:
            shown = _parameter(parameter)
            raise _broken_at(function, f"{name} takes `{shown}`, but a tool's parameters each need a name and a type")
    if tool.takes_state and not worker.stateful:
        text = f"{name} takes `state`, but {worker.__name__} has no `open(self, row)` to create it"
        raise _broken_at(function, text)
    try:
        tool.schema()
    except pydantic.errors.PydanticUserError as error:
        text = " ".join(str(error).split("\n")[0].split())
        raise _broken_at(function, f"{name} has a parameter that no model can give: {text}") from None


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(function)
    except Exception:  # an annotation may be any text
        return {}


def _broken(worker: type[Worker], problem: str) -> InvalidWorker:
    file, line = _file_and_line(worker)
    place = _place(file, line) if line else file
    return InvalidWorker(f"{place}: {worker.__name__} {problem}")


def _file_and_line(worker: type[Worker]) -> tuple[str, int]:
    """Return where a class is defined; its module and 0 where no file says so."""
    try:
        file, (_, line) = inspect.getsourcefile(worker), inspect.findsource(worker)
    except (OSError, TypeError):
        return worker.__module__, 0
    return file or "?", line + 1


def _broken_at(function: Callable[..., Any], problem: str) -> InvalidWorker:
    code = getattr(function, "__code__", None)
    place = _place(code.co_filename, code.co_firstlineno) if code is not None else function.__module__
    return InvalidWorker(f"{place}: {problem}")


def _place(file: str, line: int) -> str:
    path = Path(file)
    if path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
    return f"{path}:{line}"
