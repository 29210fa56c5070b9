"""Requests and replies of both dialects, and the limit of requests at a time."""

from __future__ import annotations

import asyncio
from typing import Any

import openai.types.chat
import openai.types.responses
import pydantic
import pytest
from gymq.workers.models.openai_model.tests.conftest import KEY, Start, ask
from gymq.workers.models.openai_model.tests.mock_server import Answer, Asked, MockServer, as_json
from gymq.workers.models.openai_model.tests.replies import USAGE, completion, response
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming
from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming

from gymq.protocol.packing import pack
from gymq.testing import function_call

TOOL = {
    "type": "function",
    "name": "add",
    "description": "The sum.",
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
    "strict": True,
}
CALL = function_call("add", {"a": 1})
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "2"}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Add them."}]}
CONVERSATION = [{"role": "user", "content": "1 + 1?"}, REASONING, CALL, OUTPUT]


def checked_request(asked: Asked) -> dict[str, Any]:
    """The body, after the vendor's own types have found nothing wrong with it."""
    chat = asked.target.endswith("/chat/completions")
    expected = CompletionCreateParamsNonStreaming if chat else ResponseCreateParamsNonStreaming
    assert asked.body.keys() <= expected.__required_keys__ | expected.__optional_keys__
    adapter = pydantic.TypeAdapter(expected)
    checked: Any = adapter.validate_python(asked.body)
    for member in ("messages", "tools"):
        list(checked.get(member, ()))  # pydantic checks the elements of an iterable when they are taken
    return asked.body


async def test_a_responses_request_is_passed_on_and_so_is_its_reply(start: Start, server: MockServer) -> None:
    server.answers = [as_json(response("I add.", CALL))]
    reply = await ask(await start(), input=CONVERSATION, tools=[TOOL], temperature=0.5, max_output_tokens=10)
    assert reply == response("I add.", CALL)
    body = checked_request(server.asked[0])
    assert server.asked[0].target == "/v1/responses"
    assert body["input"] == CONVERSATION
    assert (body["model"], body["temperature"], body["max_output_tokens"]) == ("served", 0.5, 10)
    assert body["tools"] == [TOOL]


async def test_a_chat_request_is_converted_and_so_is_its_reply(start: Start, server: MockServer) -> None:
    call = {"id": "call_2", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    server.answers = [as_json(completion("I add.", tool_calls=[call]))]
    choice = {"type": "function", "name": "add"}
    worker = await start(dialect="chat")
    reply = await ask(worker, input=CONVERSATION, tools=[TOOL], tool_choice=choice, max_output_tokens=10)
    openai.types.responses.Response.model_validate({**reply, "usage": None})
    assert [item["type"] for item in reply["output"]] == ["message", "function_call"]
    assert reply["output"][1]["arguments"] == '{"a": 1}'
    assert reply["usage"] == USAGE
    assert reply["status"] == "completed"
    body = checked_request(server.asked[0])
    assert server.asked[0].target == "/v1/chat/completions"
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "tool"]
    assert (body["model"], body["max_tokens"]) == ("served", 10)
    assert body["tools"] == [{"type": "function", "function": {n: v for n, v in TOOL.items() if n != "type"}}]
    assert body["tool_choice"] == {"type": "function", "function": {"name": "add"}}


async def test_a_chat_reply_that_was_cut_is_incomplete(start: Start, server: MockServer) -> None:
    server.answers = [as_json(completion("I ad", finish_reason="length"))]
    reply = await ask(await start(dialect="chat"))
    assert reply["incomplete_details"] == {"reason": "max_output_tokens"}


@pytest.mark.parametrize("member", ["reasoning_content", "reasoning"])
async def test_separate_reasoning_of_a_chat_reply_is_an_item(start: Start, server: MockServer, member: str) -> None:
    server.answers = [as_json(completion("2", **{member: "One and one."}))]
    reply = await ask(await start(dialect="chat"))
    assert [item["type"] for item in reply["output"]] == ["reasoning", "message"]
    assert reply["output"][0]["summary"][0]["text"] == "One and one."
    assert reply["output"][1]["content"][0]["text"] == "2"


async def test_tags_are_no_border_between_separate_reasoning_and_the_text(start: Start, server: MockServer) -> None:
    server.answers = [as_json(completion("Write <think>x</think>.", reasoning="Not </think> yet."))]
    reply = await ask(await start(dialect="chat"))
    thought, message = reply["output"]
    assert thought["summary"] == [{"type": "summary_text", "text": "Not </think> yet."}]
    assert message["content"][0]["text"] == "Write <think>x</think>."


async def test_think_tags_in_the_text_of_a_chat_reply_stay_text(start: Start, server: MockServer) -> None:
    server.answers = [as_json(completion("<think>hm</think>2"))]
    reply = await ask(await start(dialect="chat"))
    assert reply["output"][0]["content"][0]["text"] == "<think>hm</think>2"


async def test_the_key_and_the_headers_are_sent(start: Start, server: MockServer) -> None:
    server.answers = [as_json(response("Hello"))]
    await ask(await start(openai_default_headers={"X-Team": "blue"}))
    headers = server.asked[0].headers
    assert headers["authorization"] == f"Bearer {KEY}"
    assert headers["x-team"] == "blue"
    assert headers["content-type"] == "application/json"


async def test_a_given_authorization_header_wins(start: Start, server: MockServer) -> None:
    server.answers = [as_json(response("Hello"))]
    await ask(await start(openai_default_headers={"authorization": "Token 1234"}))
    assert server.asked[0].headers["authorization"] == "Token 1234"


@pytest.mark.parametrize("dialect", ["responses", "chat"])
async def test_the_extra_body_fills_what_the_request_does_not_set(
    start: Start, server: MockServer, dialect: str
) -> None:
    server.answers = [as_json(response("Hello") if dialect == "responses" else completion("Hello"))]
    extra = {"temperature": 0.9, "top_k": 20, "top_p": 0.8, "model": "ignored"}
    worker = await start(dialect=dialect, extra_body=extra)
    await ask(worker, temperature=0.1, top_p=None, model="ignored too")
    body = server.asked[0].body
    assert (body["temperature"], body["top_k"], body["top_p"], body["model"]) == (0.1, 20, 0.8, "served")


async def test_reasoning_in_the_history_is_dropped_if_wanted(start: Start, server: MockServer) -> None:
    server.answers = [as_json(response("Hello"))]
    await ask(await start(drop_input_reasoning_items=True), input=CONVERSATION)
    assert server.asked[0].body["input"] == [CONVERSATION[0], CALL, OUTPUT]


async def test_token_ids_of_another_engine_are_not_sent(start: Start, server: MockServer) -> None:
    server.answers = [as_json(response("Hello"))]
    tokens = {"prompt_token_ids": [1], "generation_token_ids": [2], "generation_log_probs": [-0.5]}
    history = {"output": [{**CALL, **tokens}]}
    pack(history)
    await ask(await start(), input=[CONVERSATION[0], *history["output"], OUTPUT])
    assert server.asked[0].body["input"] == [CONVERSATION[0], CALL, OUTPUT]


async def test_a_slash_at_the_end_of_the_url_does_not_matter(start: Start, server: MockServer) -> None:
    server.answers = [as_json(response("Hello"))]
    await ask(await start(openai_base_url=f"{server.url}/"))
    assert server.asked[0].target == "/v1/responses"


async def test_the_proxy_of_the_environment_is_used(
    start: Start, server: MockServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{server.port}")
    monkeypatch.setenv("no_proxy", "localhost")
    server.answers = [as_json(response("Hello"))]
    await ask(await start(openai_base_url="http://model.example/v1"))
    assert server.asked[0].target == "http://model.example/v1/responses"


class Gate:
    """Holds answers back until it is opened."""

    def __init__(self) -> None:
        self.open = asyncio.Event()

    async def reply(self, _asked: Asked) -> Answer:
        await self.open.wait()
        return as_json(response("Hello"))


async def test_no_more_requests_than_allowed_are_on_their_way(start: Start, server: MockServer) -> None:
    gate = Gate()
    server.reply = gate.reply
    worker = await start(max_concurrent_requests=3)
    asking = [asyncio.create_task(ask(worker)) for _ in range(10)]
    await server.busy_with(3)
    gate.open.set()
    await asyncio.gather(*asking)
    assert server.most_in_flight == 3
    assert len(server.asked) == 10


async def test_without_a_limit_all_requests_are_on_their_way(start: Start, server: MockServer) -> None:
    gate = Gate()
    server.reply = gate.reply
    worker = await start()
    asking = [asyncio.create_task(ask(worker)) for _ in range(150)]
    await server.busy_with(150)
    gate.open.set()
    await asyncio.gather(*asking)


async def test_cancelled_waiters_do_not_hold_a_place(start: Start, server: MockServer) -> None:
    gate = Gate()
    server.reply = gate.reply
    worker = await start(max_concurrent_requests=1)
    running = asyncio.create_task(ask(worker))
    await server.busy_with(1)
    waiting = [asyncio.create_task(ask(worker)) for _ in range(5)]
    await asyncio.sleep(0)
    for task in (running, *waiting):
        task.cancel()
    await asyncio.gather(running, *waiting, return_exceptions=True)
    gate.open.set()
    await asyncio.gather(ask(worker), ask(worker))
    assert len(server.asked) == 3


async def test_waiting_for_a_place_counts_towards_the_deadline(start: Start, server: MockServer) -> None:
    server.reply = Gate().reply
    worker = await start(max_concurrent_requests=1)
    running = asyncio.create_task(ask(worker))
    await server.busy_with(1)
    with pytest.raises(Exception, match="no answer within"):
        await ask(worker, timeout_s=0.02)
    running.cancel()


async def test_a_wait_between_tries_does_not_hold_a_place(
    start: Start, server: MockServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    between = asyncio.Event()

    async def sleep(_seconds: float) -> None:
        between.set()
        await asyncio.get_running_loop().create_future()

    monkeypatch.setattr("gymq.workers.models.openai_model.endpoint.sleep", sleep)
    server.answers = [as_json({}, "503 Service Unavailable"), as_json(response("Hello"))]
    worker = await start(max_concurrent_requests=1)
    first = asyncio.create_task(ask(worker))
    await between.wait()
    assert (await ask(worker))["status"] == "completed"
    first.cancel()
