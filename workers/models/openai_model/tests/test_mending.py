"""Replies that are slightly off are read: what the policy said has been paid for."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from gymq.workers.models.openai_model.tests.conftest import Start, ask
from gymq.workers.models.openai_model.tests.mock_server import Answer, MockServer, as_json
from gymq.workers.models.openai_model.tests.replies import completion, response

import gymq
from gymq.responses import function_calls, output_text, validate_response
from gymq.responses.items import reasoning_texts

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


def _with_content(content: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content}}]}


VALUES = [None, "", "text", 0, -1, 2.5, True, [], [None], {}, {"type": "text"}, [{"type": "text", "text": "a"}], 10**30]


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield all containers in a value with their keys."""
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from _places(value[key])


def _mutated(whole: dict[str, Any], dice: random.Random) -> dict[str, Any]:
    changed: dict[str, Any] = json.loads(json.dumps(whole))
    for _ in range(dice.randint(1, 3)):
        holder, key = dice.choice(list(_places(changed)))
        if isinstance(holder, dict) and dice.random() < 0.3:
            del holder[key]
        else:
            holder[key] = json.loads(json.dumps(dice.choice(VALUES)))
        if not changed:
            break
    return changed


@DIALECTS
@pytest.mark.parametrize("size", [200, pytest.param(5000, marks=pytest.mark.nightly)])
async def test_any_reply_is_read_or_worth_another_attempt(
    start: Start, server: MockServer, dialect: str, size: int, waits: list[float]
) -> None:
    """Nothing that a policy or its engine can put into a reply loses a rollout for good."""
    dice = random.Random(34)
    call = {"type": "function_call", "id": "c1", "call_id": "c1", "name": "add", "arguments": '{"a": 1}'}
    whole = response("Hi", call) if dialect == "responses" else completion("Hi", tool_calls=[CALL])
    worker = await start(dialect=dialect)
    for _ in range(size):
        changed = _mutated(whole, dice)
        server.answers = [as_json(changed)]
        try:
            validate_response(await ask(worker))
        except gymq.RolloutError as error:
            lost = [] if error.retryable else [changed]
        else:
            lost = []
        assert lost == []
