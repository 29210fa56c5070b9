"""Check the create parameters of a Responses request; unknown values of later API versions cause a warning."""

from __future__ import annotations

from difflib import get_close_matches
from functools import lru_cache
from typing import Any, Literal

import msgspec

from gymq.responses.errors import MAX_NAME, InvalidRequest, checked, warn_once
from gymq.responses.schema import check_items


class _ReasoningParams(msgspec.Struct):
    effort: str | None = None
    summary: str | None = None
    generate_summary: str | None = None


class _Prompt(msgspec.Struct):
    id: str
    variables: dict[str, Any] | None = None
    version: str | None = None


class _FunctionTool(msgspec.Struct, forbid_unknown_fields=True):
    type: Literal["function"]
    name: str
    parameters: dict[str, Any] | None
    strict: bool | None
    description: str | None = None
    allowed_callers: list[str] | None = None
    is_async: bool | None = msgspec.field(name="async", default=None)
    defer_loading: bool | None = None
    output_schema: dict[str, Any] | None = None


_FIELDS_OF_FUNCTIONS = frozenset(field.encode_name for field in msgspec.structs.fields(_FunctionTool))


class _Params(msgspec.Struct):
    input: Any
    access_programs: dict[str, Any] | None = None
    background: bool | None = None
    background_options: dict[str, Any] | None = None
    context_management: list[dict[str, Any]] | None = None
    conversation: str | dict[str, Any] | None = None
    image: dict[str, Any] | None = None
    include: list[str] | None = None
    instructions: str | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    metadata: dict[str, str] | None = None
    model: str | None = None
    moderation: dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    previous_response_id: str | None = None
    prompt: _Prompt | None = None
    prompt_cache_key: str | None = None
    prompt_cache_options: dict[str, Any] | None = None
    prompt_cache_retention: str | None = None
    reasoning: _ReasoningParams | None = None
    safety_identifier: str | None = None
    service_tier: str | None = None
    store: bool | None = None
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    temperature: float | None = None
    text: dict[str, Any] | None = None
    tool_choice: str | dict[str, Any] | None = None
    tools: list[Any] | None = None
    top_logprobs: int | None = None
    top_p: float | None = None
    truncation: str | None = None
    user: str | None = None


KNOWN = frozenset(_Params.__struct_fields__)
_NUMBERS_AND_FLAGS = frozenset(
    {
        "background",
        "max_output_tokens",
        "max_tool_calls",
        "parallel_tool_calls",
        "store",
        "stream",
        "temperature",
        "top_logprobs",
        "top_p",
    }
)


_VALUES = {
    "service_tier": frozenset({"auto", "default", "flex", "scale", "priority", "fast", "ultrafast"}),
    "tool_choice": frozenset({"none", "auto", "required"}),
    "truncation": frozenset({"auto", "disabled"}),
}
_EFFORTS = frozenset({"none", "minimal", "low", "medium", "high", "xhigh", "max"})
_SUMMARIES = frozenset({"auto", "concise", "detailed"})

_IN_PARTS = ("background", "background_options", "stream", "stream_options")
"""Fields that request a streamed or a later reply."""


def known_params(body: object) -> dict[str, Any]:
    """Return the fields of a request that `validate_params` knows.

    Others, of later API versions or of the caller's own, are dropped with one logged warning for each name. So are
    requests to stream the reply or to answer in the background, since workers return the whole reply.

    Raises:
        InvalidRequest: it is not an object.
    """
    if not isinstance(body, dict):
        raise InvalidRequest("", f"expected an object with the field `input`, got {type(body).__name__}")
    params = {name: value for name, value in body.items() if name in KNOWN}
    for name in body.keys() - KNOWN:
        close = _meant(str(name)[:MAX_NAME], 0.7)
        hint = f"; did you mean {close!r}?" if close else ""
        warn_once(f"the request's field {str(name)[:MAX_NAME]!r} is dropped: it is not known here{hint}")
    for name in _IN_PARTS:
        if params.get(name):
            del params[name]
            warn_once(f"the request's field {name!r} is dropped: the reply is returned whole")
    if isinstance(params.get("tools"), list):
        params["tools"] = [_known_tool(tool) for tool in params["tools"]]
    return params


def row_params(params: object) -> dict[str, Any]:
    """Check the create parameters of a row and return the known ones; `tools` may contain names of tools.

    A name close to a known one is refused as a typing error: if it were dropped, the row would be sampled with other
    parameters than its author wants.

    Raises:
        InvalidRequest: a field does not fit; the error has the path of the first one.
    """
    for name in sorted(params.keys() - KNOWN if isinstance(params, dict) else ()):
        if meant := _meant(str(name)[:MAX_NAME], 0.8):
            raise InvalidRequest(str(name)[:MAX_NAME], f"unknown field; did you mean {meant!r}?")
    return validate_params(known_params(params), tool_names=True)


@lru_cache(maxsize=256)  # all rows of a run have the same names, and comparing costs more than reading a row
def _meant(name: str, cutoff: float) -> str | None:
    """Return the known field that is closest to a name, as `difflib` measures it."""
    return next(iter(get_close_matches(name, KNOWN, n=1, cutoff=cutoff)), None)


def _known_tool(tool: Any) -> Any:
    if not isinstance(tool, dict) or tool.get("type") != "function" or "name" not in tool:
        return tool
    known = {name: value for name, value in tool.items() if name in _FIELDS_OF_FUNCTIONS}
    for name in tool.keys() - known.keys():
        warn_once(f"the field {str(name)[:MAX_NAME]!r} of function tools is dropped: it is not known here")
    return known


def validate_params(params: object, *, tool_names: bool = False) -> dict[str, Any]:
    """Check Responses create parameters and return them, ready for `responses_to_chat`.

    A null field counts as absent. Numbers and flags written as text (`"0.5"`) and whole floats for integers are
    accepted and converted. `stream` may only be false: workers answer with the whole reply, the HTTP bridge replays it.
    Tools other than functions are passed to the endpoint unchecked, and so are values that a later version of the API
    may have, such as a service tier, with one warning for each.

    Args:
        tool_names: whether an entry of `tools` may be the name of an environment's tool, as in a row of a data set.

    Raises:
        InvalidRequest: a field does not fit; the error has the path of the first one.
    """
    if not isinstance(params, dict):
        raise InvalidRequest("", f"expected an object with the field `input`, got {type(params).__name__}")
    if not params.keys() <= KNOWN:
        name = next(name for name in params if name not in KNOWN)
        raise InvalidRequest(str(name), f"unknown field; known are {', '.join(sorted(KNOWN))}")
    converted = checked(params, _Params, strict=False)
    if converted.stream:
        raise InvalidRequest("stream", "only false is possible here")
    for index, tool in enumerate(converted.tools or ()):
        if not (tool_names and isinstance(tool, str)):
            _check_tool(tool, f"tools[{index}]")
    _warn_of_new_values(converted)

    result = {name: getattr(converted, name) if name in _NUMBERS_AND_FLAGS else params[name] for name in params}
    if not isinstance(converted.input, str):
        result["input"] = check_items(converted.input, "input")
    return result


def _warn_of_new_values(params: _Params) -> None:
    values = [(name, getattr(params, name), known) for name, known in _VALUES.items()]
    if params.reasoning is not None:
        values.append(("reasoning.effort", params.reasoning.effort, _EFFORTS))
        values.append(("reasoning.summary", params.reasoning.summary, _SUMMARIES))
    for name, value, known in values:
        if isinstance(value, str) and value not in known:
            options = ", ".join(sorted(known))
            warn_once(f"{name}: {value[:MAX_NAME]!r} is not known here and is passed on; known are {options}")


def _check_tool(tool: object, path: str) -> None:
    if not isinstance(tool, dict) or not isinstance(tool.get("type"), str):
        raise InvalidRequest(f"{path}.type", "expected a tool, an object with `type`")
    if tool["type"] == "function":
        if "function" in tool:
            reason = "a form of Chat Completions; here `name` and `parameters` are beside `type`"
            raise InvalidRequest(f"{path}.function", reason)
        checked(tool, _FunctionTool, path=path)
