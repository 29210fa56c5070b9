"""Replies that are slightly off are read: what the policy said has been paid for."""

from __future__ import annotations

import json
from typing import Any

import pytest
from gymq.workers.models.openai_model.tests.conftest import Start, ask
from gymq.workers.models.openai_model.tests.mock_server import Answer, MockServer, as_json
from gymq.workers.models.openai_model.tests.replies import completion, response

import gymq
from gymq.ext.conversion.items import reasoning_texts
from gymq.responses import function_calls, output_text

CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
DIALECTS = pytest.mark.parametrize("dialect", ["responses", "chat"])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("created", None),
        ("created", "1750000000"),
        ("id", 5),
        ("usage", {"prompt_tokens": 3.5, "completion_tokens": 2.0, "total_tokens": 5.5}),
        ("usage", {"completion_tokens": 2}),
        ("usage", "none"),
    ],
)
async def test_what_only_counts_does_not_matter(start: Start, server: MockServer, field: str, value: Any) -> None:
    server.answers = [as_json({**completion("Hello"), field: value})]
    assert output_text(await ask(await start(dialect="chat"))) == "Hello"


async def test_usage_that_can_be_read_is_kept(start: Start, server: MockServer) -> None:
    server.answers = [as_json({**completion("Hello"), "usage": {"completion_tokens": "2", "total_tokens": 5.0}})]
    usage = (await ask(await start(dialect="chat")))["usage"]
    assert (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]) == (3, 2, 5)


@pytest.mark.parametrize(
    ("changed", "arguments"),
    [
        ({**CALL, "id": 7, "type": None}, '{"a": 1}'),
        ({**CALL, "function": {"name": "add", "arguments": {"a": 1}}}, '{"a": 1}'),
        ({**CALL, "function": {"name": "add", "arguments": None}}, "{}"),
        ({**CALL, "function": {"name": "add", "arguments": ""}}, "{}"),
        ({**CALL, "function": {"name": "add"}}, "{}"),
    ],
)
async def test_calls_are_read(start: Start, server: MockServer, changed: dict[str, Any], arguments: str) -> None:
    server.answers = [as_json(completion(None, finish_reason="tool_calls", tool_calls=[changed]))]
    [call] = function_calls(await ask(await start(dialect="chat")))
    assert (call["name"], call["arguments"]) == ("add", arguments)


async def test_the_old_form_of_a_call_is_read(start: Start, server: MockServer) -> None:
    server.answers = [as_json(completion(None, finish_reason="function_call", function_call=CALL["function"]))]
    [call] = function_calls(await ask(await start(dialect="chat")))
    assert (call["name"], call["arguments"]) == ("add", '{"a": 1}')


async def test_content_in_parts_is_text_and_reasoning(start: Start, server: MockServer) -> None:
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    server.answers = [as_json({**completion(None), **_with_content([thought, {"type": "text", "text": "Hello"}])})]
    reply = await ask(await start(dialect="chat"))
    assert output_text(reply) == "Hello"
    assert reasoning_texts(reply["output"][0]) == ["hm"]


@pytest.mark.parametrize("reason", ["MAX_TOKENS", "LENGTH", "max_tokens"])
async def test_a_limit_in_other_words_is_a_limit(start: Start, server: MockServer, reason: str) -> None:
    server.answers = [as_json(completion("Hel", finish_reason=reason))]
    assert (await ask(await start(dialect="chat")))["incomplete_details"] == {"reason": "max_output_tokens"}


async def test_a_response_without_what_repeats_the_request_is_filled(start: Start, server: MockServer) -> None:
    whole = response("Hello")
    kept = {name: whole[name] for name in ("output", "status")}
    server.answers = [as_json({**kept, "usage": {"input_tokens": 1.0, "output_tokens": "2"}})]
    tool = {"type": "function", "name": "add", "parameters": {"type": "object", "properties": {}}, "strict": False}
    reply = await ask(await start(), tools=[tool], parallel_tool_calls=False)
    assert output_text(reply) == "Hello"
    assert (reply["tools"], reply["parallel_tool_calls"], reply["tool_choice"]) == ([tool], False, "auto")
    assert reply["usage"]["total_tokens"] == 3


@DIALECTS
@pytest.mark.parametrize(
    ("sent", "read"), [(b"done \\ud83d ok", "done \ufffd ok"), (b"a\xff", "a\ufffd"), (b"\\ud83d\\ude00", "\U0001f600")]
)
async def test_half_a_character_costs_only_itself(
    start: Start, server: MockServer, dialect: str, sent: bytes, read: str
) -> None:
    whole = json.dumps(response("HERE") if dialect == "responses" else completion("HERE")).encode()
    server.answers = [Answer(b"\xef\xbb\xbf" + whole.replace(b"HERE", sent))]
    assert output_text(await ask(await start(dialect=dialect))) == read


@pytest.mark.parametrize(
    ("item", "text"),
    [
        ({"role": "assistant", "content": "Hello"}, "Hello"),
        ({"type": "MESSAGE", "content": ["Hel", {"text": "lo"}], "status": None}, "Hello"),
        ({"type": "message", "content": [{"type": "text", "text": ["Hello"]}], "id": 5}, "Hello"),
        ({"type": "message", "role": "assistant", "content": None}, ""),
    ],
)
async def test_messages_of_responses_are_read(start: Start, server: MockServer, item: Any, text: str) -> None:
    server.answers = [as_json({**response(), "output": [item]})]
    assert output_text(await ask(await start())) == text


async def test_items_show_their_type(start: Start, server: MockServer) -> None:
    call = {"id": 7, "name": "add", "arguments": {"a": 1}}
    server.answers = [as_json({**response(), "output": [{"summary": "hm"}, call]})]
    thought, called = (await ask(await start()))["output"]
    assert reasoning_texts(thought) == ["hm"]
    assert (called["type"], called["call_id"], called["arguments"]) == ("function_call", "7", '{"a": 1}')


async def test_a_call_with_an_empty_id_gets_one(start: Start, server: MockServer) -> None:
    call = {"type": "function_call", "id": "fc_1", "call_id": "", "name": "add", "arguments": "{}"}
    server.answers = [as_json(response(call))]
    [called] = function_calls(await ask(await start()))
    assert called["call_id"] == "fc_1"


@pytest.mark.parametrize("details", [None, "max_output_tokens", {}])
async def test_a_response_that_is_cut_says_why(start: Start, server: MockServer, details: Any) -> None:
    server.answers = [as_json({**response("Hel"), "status": "incomplete", "incomplete_details": details})]
    assert (await ask(await start()))["incomplete_details"] == {"reason": "max_output_tokens"}


@pytest.mark.parametrize(
    ("content", "text"), [({"answer": 4}, '{"answer": 4}'), (4, "4"), ({"type": "text", "text": "4"}, "4")]
)
async def test_text_that_a_gateway_has_parsed_is_text(
    start: Start, server: MockServer, content: Any, text: str
) -> None:
    server.answers = [as_json({**completion(None), **_with_content(content)})]
    assert output_text(await ask(await start(dialect="chat"))) == text


async def test_a_number_that_json_does_not_have_is_null(start: Start, server: MockServer) -> None:
    body = json.dumps({**completion("Hello"), "created": float("nan")}).encode()
    server.answers = [Answer(body)]
    assert output_text(await ask(await start(dialect="chat"))) == "Hello"


async def test_each_kind_is_warned_of_once_in_a_run_and_counted(
    start: Start, server: MockServer, caplog: pytest.LogCaptureFixture
) -> None:
    off = {**completion(None), **_with_content([{"type": "text", "text": "Hello"}]), "usage": "none"}
    server.answers = [as_json(off)]
    worker = await start(dialect="chat")
    for run in ("one", "one", "two"):
        params = {"input": [{"role": "user", "content": "Hi"}]}
        await worker.respond(gymq.ModelRequest(params, f"{run}/0/0", f"{run}/0/0", 30.0))
    kinds = [f"replies with another `{name}` than specified" for name in ("content", "usage")]
    assert worker.oddities() == dict.fromkeys(kinds, 3)
    warned = sorted(record.getMessage() for record in caplog.records if "than specified" in record.getMessage())
    assert warned == [f"policy_model, run {run}: there are {kind}" for run in ("one", "two") for kind in kinds]


def _with_content(content: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content}}]}
