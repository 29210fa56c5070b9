"""What the official client may send is carried, used or dropped: each field and item that its types know."""

import inspect
import json
import types
from collections.abc import Iterable, Iterator
from typing import Any, Literal, NotRequired, Required, Union, get_args, get_origin, get_type_hints

import pytest
import typing_extensions
from openai.types.responses import ResponseInputItemParam, ResponseOutputItem
from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming
from pydantic import BaseModel

from gymq.ext.conversion.foreign import foreign_params
from gymq.ext.conversion.to_chat import responses_to_chat
from gymq.responses import errors, response_without_model, row_params, validate_params, validate_response
from gymq.responses.params import KNOWN

DEPTH = 6
FIELDS = get_type_hints(ResponseCreateParamsNonStreaming, include_extras=True)
FUNCTION: dict[str, Any] = {"type": "function", "name": "text", "parameters": {}, "strict": None}
QUALIFIERS = (
    Required,
    NotRequired,
    typing_extensions.Required,
    typing_extensions.NotRequired,
    typing_extensions.Annotated,
)


def values(kind: Any, depth: int = 0) -> Iterator[Any]:
    """Values of a type: of an object the least, and for each field each of its values."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in QUALIFIERS or origin in (Union, types.UnionType):
        for argument in arguments[:1] if origin in QUALIFIERS else arguments:
            yield from values(argument, depth)
    elif origin is Literal:
        yield from arguments
    elif typing_extensions.is_typeddict(kind):
        yield from objects(get_type_hints(kind, include_extras=True), depth, total=kind.__total__)
    elif inspect.isclass(kind) and issubclass(kind, BaseModel):
        required = {name: field.annotation for name, field in kind.model_fields.items() if field.is_required()}
        yield from objects(required, depth, total=True)
    elif origin is dict or kind is dict:
        yield {"key": next(values(arguments[1], depth)) if arguments else "text"}
    elif inspect.isclass(origin) and issubclass(origin, Iterable):
        yield from ([value] for value in values(arguments[0], depth))
    else:
        yield {type(None): None, bool: True, int: 1, float: 0.5}.get(kind, "text")


def objects(fields: dict[str, Any], depth: int, *, total: bool) -> Iterator[dict[str, Any]]:
    def is_required(kind: Any) -> bool:
        origin = get_origin(kind)
        return origin in (Required, typing_extensions.Required) or (total and origin not in QUALIFIERS)

    least = {name: next(values(kind, depth + 1)) for name, kind in fields.items() if is_required(kind)}
    yield least
    if depth < DEPTH:
        for name, kind in fields.items():
            yield from ({**least, name: value} for value in values(kind, depth + 1))


def test_the_types_are_walked() -> None:
    assert {"input", "tools", "conversation", "prompt_cache_key", "safety_identifier"} <= FIELDS.keys()
    assert sum(1 for _ in values(FIELDS["input"])) > 300
    assert {"type": "custom_tool_call", "call_id": "text", "input": "text", "name": "text"} in list(
        values(ResponseInputItemParam)
    )


@pytest.mark.parametrize("name", sorted(FIELDS))
def test_a_field_of_a_request_is_known_in_each_of_its_forms(name: str) -> None:
    assert name in KNOWN
    for value in values(FIELDS[name]):
        if name == "input" and value is None:
            continue
        request = {"input": "?", name: value}
        by_program, by_row = validate_params(foreign_params(request)), row_params(request)
        if (
            name in ("background", "background_options", "stream", "stream_options") and value
        ):  # the reply is returned whole
            assert by_program == by_row == {"input": "?"}
        elif name == "tools":  # function tools of programs get the fields that the schema wants
            assert by_row == request
        elif name != "input":  # items have a test of their own
            assert by_program == by_row == json.loads(json.dumps(request))
        if name not in ("input", "conversation", "previous_response_id"):  # chat keeps no conversations
            custom = {"type": "custom", "name": "text"}
            chosen = custom if isinstance(value, dict) and value.get("type") == "custom" else FUNCTION
            responses_to_chat(by_row if name != "tool_choice" else {**by_row, "tools": [chosen]})


def test_an_item_of_a_conversation_is_carried_and_fits_into_chat() -> None:
    for item in values(ResponseInputItemParam):
        checked = validate_params(foreign_params({"input": [item]}))
        kept = {name: value for name, value in item.items() if (item.get("type"), name) != ("reasoning", "status")}
        assert checked["input"] == [kept]
        if "input_" not in json.dumps(item):  # files and uploaded images have no place in chat
            responses_to_chat(checked)


def test_an_item_of_a_reply_is_carried() -> None:
    for item in values(ResponseOutputItem):
        kept = {name: value for name, value in item.items() if (item["type"], name) != ("reasoning", "status")}
        assert validate_response({**response_without_model("m", []), "output": [item]})["output"] == [kept]


def test_what_later_versions_have_is_dropped_with_one_warning(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(errors, "_reported", set())
    body = {"input": [{"role": "user", "content": "?"}, {"type": "dream_call", "x": 1}], "mood": "calm"}
    for _ in range(2):
        assert foreign_params(body) == {"input": body["input"][:1]}
    assert sorted(caplog.messages) == [
        "items of type 'dream_call' are dropped: they are not known here",
        "the request's field 'mood' is dropped: it is not known here",
    ]
