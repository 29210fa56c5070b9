"""A 400 is examined before it is final: fields on which no reply depends are left out, and others are named."""

from __future__ import annotations

from typing import Any

import pytest
from gymq.workers.models.openai_model.tests.conftest import Start, ask, failure
from gymq.workers.models.openai_model.tests.mock_server import Answer, Asked, MockServer, as_json, error
from gymq.workers.models.openai_model.tests.replies import completion, response

from gymq.responses import output_text

TOOL = {"type": "function", "name": "add", "parameters": {"type": "object", "properties": {}}, "strict": True}
SAID = {
    "OpenAI": "Unknown parameter: '{}'.",
    "OpenAI, of a model": "Unsupported parameter: '{}' is not supported with this model.",
    "Azure": "Unrecognized request argument supplied: {}",
    "Groq": "property '{}' is unsupported",
    "Gemini": 'Invalid JSON payload received. Unknown name "{}": Cannot find field.',
    "vLLM": "[{{'type': 'extra_forbidden', 'loc': ('body', '{}'), 'msg': 'Extra inputs are not permitted'}}]",
    "TGI": "Failed to deserialize the JSON body into the target type: unknown field `{}`, expected one of `model`",
}


def refusing(server: MockServer, field: str, said: str, dialect: str = "chat") -> None:
    """Have the server refuse every request with a field, also one of a tool."""
    good = as_json(completion("Hello") if dialect == "chat" else response("Hello"))

    async def reply(asked: Asked) -> Answer:
        tools = [tool.get("function", tool) for tool in asked.body.get("tools") or ()]
        return error("400 Bad Request", said) if any(field in one for one in (asked.body, *tools)) else good

    server.reply = reply


@pytest.mark.parametrize("said", SAID.values(), ids=SAID)
async def test_a_field_that_changes_nothing_is_left_out_from_then_on(
    start: Start, server: MockServer, said: str
) -> None:
    refusing(server, "store", said.format("store"))
    worker = await start(dialect="chat")
    for _ in range(2):
        assert output_text(await ask(worker, store=False, temperature=0.5)) == "Hello"
    assert ["store" in asked.body for asked in server.asked] == [True, False, False]
    assert [asked.body["temperature"] for asked in server.asked] == [0.5] * 3


async def test_a_body_in_the_form_of_fastapi_names_its_field(start: Start, server: MockServer) -> None:
    detail = [{"type": "extra_forbidden", "loc": ["body", "metadata"], "msg": "Extra inputs are not permitted"}]
    server.answers = [as_json({"detail": detail}, "422 Unprocessable Entity"), as_json(completion("Hello"))]
    await ask(await start(dialect="chat"), metadata={"a": "b"}, user="u")
    assert [sorted({"metadata", "user"} & asked.body.keys()) for asked in server.asked] == [
        ["metadata", "user"],
        ["user"],
    ]


async def test_all_such_fields_go_one_after_the_other(start: Start, server: MockServer) -> None:
    fields: dict[str, Any] = {"metadata": {"a": "b"}, "user": "u", "store": True, "service_tier": "auto"}
    fields |= {"parallel_tool_calls": True, "tool_choice": "auto", "truncation": "disabled"}

    async def reply(asked: Asked) -> Answer:
        unknown = sorted(fields.keys() & asked.body.keys())
        return error("400 Bad Request", f"Unknown parameter: '{unknown[0]}'.") if unknown else as_json(response("Hi"))

    server.reply = reply
    assert output_text(await ask(await start(dialect="responses"), **fields, tools=[TOOL])) == "Hi"
    assert len(server.asked) == len(fields) + 1


@pytest.mark.parametrize("dialect", ["responses", "chat"])
async def test_strict_is_left_out_of_tools(start: Start, server: MockServer, dialect: str) -> None:
    refusing(server, "strict", "tools[0].strict: Extra inputs are not permitted", dialect)
    await ask(await start(dialect=dialect), tools=[TOOL])
    assert len(server.asked) == 2


async def test_the_limit_of_a_reply_is_sent_under_its_newer_name(start: Start, server: MockServer) -> None:
    said = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
    refusing(server, "max_tokens", said)
    await ask(await start(dialect="chat"), max_output_tokens=20)
    assert server.asked[1].body["max_completion_tokens"] == 20


@pytest.mark.parametrize(
    "params", [{"temperature": 0.5}, {"tools": [TOOL], "tool_choice": "required"}, {"max_output_tokens": 20}], ids=str
)
async def test_a_field_that_changes_what_is_sampled_is_never_left_out(
    start: Start, server: MockServer, params: dict[str, Any]
) -> None:
    field = {"max_output_tokens": "max_tokens"}.get(name := list(params)[-1], name)
    refusing(server, field, SAID["OpenAI"].format(field))
    found = await failure(await start(dialect="chat"), **params)
    assert not found.retryable
    assert f"without {field} something else would be sampled" in found.message
    assert len(server.asked) == 1


async def test_one_tool_call_at_a_time_is_not_given_up(start: Start, server: MockServer) -> None:
    refusing(server, "parallel_tool_calls", SAID["OpenAI"].format("parallel_tool_calls"))
    worker = await start(dialect="chat")
    await ask(worker, parallel_tool_calls=True, tools=[TOOL])
    await failure(worker, parallel_tool_calls=False, tools=[TOOL])
    assert [asked.body.get("parallel_tool_calls") for asked in server.asked] == [True, None, False]


async def test_a_refusal_that_names_nothing_says_where_the_request_comes_from(start: Start, server: MockServer) -> None:
    server.answers = [error("400 Bad Request", "no")]
    found = await failure(await start(dialect="chat"), store=True)
    assert "400 Bad Request: no; change what the rows ask for" in found.message
    assert len(server.asked) == 1
