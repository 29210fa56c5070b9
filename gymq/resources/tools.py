"""Tools: methods of an environment that a model can call."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_type_hints, overload

import pydantic
from typing_extensions import TypeVar

from gymq.authoring import first_problem
from gymq.failures import ToolError
from gymq.resources.strict_schema import keeps_strict_rules


@dataclass(frozen=True)
class Tool:
    """One tool of a Resources class."""

    name: str
    function: Callable[..., Any]
    takes_state: bool
    arguments: type[pydantic.BaseModel]
    offered: bool = True  # to rows without `tools`

    def schema(self) -> dict[str, Any]:
        """Return the tool as an element of `responses_create_params.tools`."""
        parameters = self.arguments.model_json_schema()
        parameters.pop("title", None)
        for field in parameters.get("properties", {}).values():
            field.pop("title", None)
        parameters.setdefault("properties", {})
        parameters.setdefault("required", [])
        parameters["additionalProperties"] = False
        description = inspect.getdoc(self.function) or ""
        return {
            "type": "function",
            "name": self.name,
            "description": description,
            "parameters": parameters,
            "strict": keeps_strict_rules(parameters),
        }

    def parse(self, arguments: Any) -> dict[str, Any]:
        """Return the keyword arguments for the function.

        Raises:
            ToolError: 422; its message names the wrong argument.
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
        offered: whether rows without `tools` offer it; False: only rows that name it do, and agents may call it.
    """

    def marked(function: FunctionT) -> FunctionT:
        function.__gymq_tool__ = True  # type: ignore[attr-defined]
        function.__gymq_offered__ = offered  # type: ignore[attr-defined]
        return function

    return marked if function is None else marked(function)


def tool_of(function: Callable[..., Any]) -> Tool:
    """Return the tool of a marked method."""
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


def tool_output(result: Any) -> str:
    """Return the text that the model reads: other values become JSON without blanks, as in NeMo Gym."""
    if isinstance(result, str):
        text = result
    elif isinstance(result, pydantic.BaseModel):
        text = result.model_dump_json()
    else:
        text = json.dumps(result, ensure_ascii=False, separators=(",", ":"))
    # Arguments of a model can contain half of a surrogate pair, which cannot be encoded in a message.
    return text.encode(errors="replace").decode()
