"""Models over HTTP: three dialects with their own client libraries where there are some, whole and streamed."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from openai.types.shared_params import FunctionDefinition

from gymq.failures import RolloutError
from gymq.model import Model, ModelRequest
from gymq.testing import function_call, reply
from tests.support.waiting import until
from tests.support.world import Client, World, new_client

KEY = "a-key-of-sixteen-or-more"
SAID = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "hm"}],
}
TOOL: FunctionDefinition = {"name": "add", "description": "adds", "parameters": {"type": "object", "properties": {}}}


class Scripted(Model):
    """Answers what the test says, and keeps what it was asked."""

    def __init__(self) -> None:
        super().__init__({})
        self.asked: list[ModelRequest] = []
        self.answer: Any = reply(SAID, "hello", function_call("add", {"amount": 1}))
        self.hold: asyncio.Event | None = None
        self.num_cancelled = 0

    async def respond(self, request: ModelRequest) -> dict[str, Any]:
        self.asked.append(request)
        try:
            if self.hold is not None:
                await self.hold.wait()
        except asyncio.CancelledError:
            self.num_cancelled += 1
            raise
        if isinstance(self.answer, Exception):
            raise self.answer
        usage = {"input_tokens": 5, "output_tokens": 7, "total_tokens": 12}
        return {**self.answer, "usage": usage}


@pytest.fixture
def model() -> Scripted:
    return Scripted()


@pytest.fixture
async def served(empty_world: World, model: Scripted) -> World:
    await empty_world.add_model(model=model)
    await empty_world.start_bridge(api_key=KEY)
    return empty_world


@pytest.fixture
async def sdk(served: World) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{served.head}/v1", api_key=KEY, max_retries=0) as made:
        yield made


async def test_responses_answer_as_openai_does(sdk: openai.AsyncOpenAI) -> None:
    answer = await sdk.responses.create(model="policy", input="hi")
    assert answer.output_text == "hello"
    assert [item.type for item in answer.output] == ["reasoning", "message", "function_call"]
    assert answer.usage is not None
    assert answer.usage.total_tokens == 12


async def test_responses_are_streamed_as_openai_does(sdk: openai.AsyncOpenAI) -> None:
    async with sdk.responses.stream(model="policy", input="hi") as stream:
        events = [event async for event in stream]
        final = await stream.get_final_response()
    assert final.output_text == "hello"
    assert [item.type for item in final.output] == ["reasoning", "message", "function_call"]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == "hello"


async def test_a_program_may_send_all_fields_of_the_api_and_its_own(sdk: openai.AsyncOpenAI, model: Scripted) -> None:
    tools: list[Any] = [{"type": "web_search"}, {"type": "custom", "name": "apply_patch"}]
    official = {"prompt_cache_key": "k", "safety_identifier": "u", "conversation": "conv_1"}
    more = official | {"client_metadata": {"a": "b"}}
    answer = await sdk.responses.create(model="policy", input="hi", tools=tools, extra_body=more)
    assert answer.output_text == "hello"
    assert {name: model.asked[0].params.get(name) for name in more} == official | {"client_metadata": None}
    assert model.asked[0].params["tools"] == tools


async def test_calls_of_custom_tools_are_streamed_as_openai_does(sdk: openai.AsyncOpenAI, model: Scripted) -> None:
    call = {"type": "custom_tool_call", "id": "c", "call_id": "c1", "name": "apply_patch", "input": "*** Begin"}
    model.answer = {**reply("x"), "output": [call]}
    stream = await sdk.responses.create(
        model="policy", input="hi", tools=[{"type": "custom", "name": "apply_patch"}], stream=True
    )
    events = [event async for event in stream]
    assert [event.delta for event in events if event.type == "response.custom_tool_call_input.delta"] == ["*** Begin"]
    (done,) = [event.item for event in events if event.type == "response.output_item.done"]
    assert done.model_dump(exclude_none=True) == call
    chat = await sdk.chat.completions.create(
        model="policy",
        messages=[{"role": "user", "content": "hi"}],
        tools=[{"type": "custom", "custom": {"name": "apply_patch"}}],
        tool_choice={
            "type": "allowed_tools",
            "allowed_tools": {"mode": "auto", "tools": [{"type": "custom", "custom": {"name": "apply_patch"}}]},
        },
        response_format={"type": "json_object"},
        stop="END",
    )
    assert chat.choices[0].message.tool_calls is not None
    (said,) = chat.choices[0].message.tool_calls
    assert said.type == "custom"
    assert (said.custom.name, said.custom.input) == ("apply_patch", "*** Begin")
    assert model.asked[1].params["tools"] == model.asked[0].params["tools"]
    assert model.asked[1].params["text"] == {"format": {"type": "json_object"}}


async def test_chat_answers_as_openai_does(sdk: openai.AsyncOpenAI, model: Scripted) -> None:
    answer = await sdk.chat.completions.create(
        model="policy",
        messages=[{"role": "user", "content": "hi"}],
        tools=[{"type": "function", "function": TOOL}],
        temperature=0.5,
    )
    (choice,) = answer.choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "hello"
    assert choice.message.tool_calls is not None
    assert model.asked[0].params["temperature"] == 0.5
    assert model.asked[0].params["tools"][0]["name"] == "add"


async def test_chat_is_streamed_as_openai_does(sdk: openai.AsyncOpenAI) -> None:
    stream = await sdk.chat.completions.create(
        model="policy",
        messages=[{"role": "user", "content": "hi"}],
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "hello"
    (call,) = [call for chunk in chunks if chunk.choices for call in chunk.choices[0].delta.tool_calls or ()]
    assert call.function is not None
    assert (call.function.name, json.loads(call.function.arguments or "")) == ("add", {"amount": 1})
    assert chunks[-2].choices[0].finish_reason == "tool_calls"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens == 12


ANTHROPIC = {"model": "claude", "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture
async def client(served: World) -> AsyncIterator[Client]:
    async with new_client(served) as made:
        yield made


async def test_messages_answer_as_anthropic_does(client: Client) -> None:
    status, answer = await client.post("/v1/messages", ANTHROPIC, headers={"x-api-key": KEY})
    assert status == 200
    assert [block["type"] for block in answer["content"]] == ["thinking", "text", "tool_use"]
    assert answer["stop_reason"] == "tool_use"
    assert answer["model"] == "claude"
    assert answer["usage"]["output_tokens"] == 7


async def events_of(client: Client, path: str, body: Any) -> list[tuple[str, Any]]:
    """The named events of a stream."""
    headers = {"Authorization": f"Bearer {KEY}"}
    async with client.session.post(client.world.head + path, json=body, headers=headers) as answer:
        assert answer.status == 200
        assert answer.content_type == "text/event-stream"
        text = await answer.text()
    found = []
    for block in text.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if "event" in lines:
            found.append((lines["event"], json.loads(lines["data"])))
    return found


async def test_an_image_of_a_reply_is_streamed_whole(client: Client, model: Scripted) -> None:
    image = {"type": "input_image", "image_url": "data:image/png;base64,AA=="}
    model.answer = {**reply("x"), "output": [{"type": "message", "role": "assistant", "content": [image]}]}
    events = await events_of(client, "/v1/responses", {"input": "x", "stream": True})
    assert [event["part"] for _, event in events if "part" in event] == [image, image]
    assert events[-1][0] == "response.completed"


async def test_messages_are_streamed_as_anthropic_does(client: Client) -> None:
    events = await events_of(client, "/v1/messages", ANTHROPIC | {"stream": True})
    assert [name for name, _ in events] == [
        "message_start",
        *("content_block_start", "content_block_delta", "content_block_stop") * 3,
        "message_delta",
        "message_stop",
    ]
    assert all(name == body["type"] for name, body in events)
    deltas = [body["delta"] for name, body in events if name == "content_block_delta"]
    assert deltas[1] == {"type": "text_delta", "text": "hello"}
    assert json.loads(deltas[2]["partial_json"]) == {"amount": 1}
    assert events[-2][1]["delta"]["stop_reason"] == "tool_use"


GEMINI = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}
GENERATE = "/v1beta/models/gemini-3-pro:generateContent"
STREAM = "/v1beta/models/gemini-3-pro:streamGenerateContent"


async def test_gemini_answers_as_google_does(client: Client, model: Scripted) -> None:
    functions = [{"name": "add", "parameters": {"type": "OBJECT", "properties": {"amount": {"type": "INTEGER"}}}}]
    body = GEMINI | {"tools": [{"functionDeclarations": functions}], "generationConfig": {"maxOutputTokens": 100}}
    status, answer = await client.post(GENERATE, body, headers={"x-goog-api-key": KEY})
    assert status == 200
    (candidate,) = answer["candidates"]
    thought, text, call = candidate["content"]["parts"]
    assert (thought["thought"], text) == (True, {"text": "hello"})
    assert (call["functionCall"]["name"], call["functionCall"]["args"]) == ("add", {"amount": 1})
    assert (candidate["finishReason"], answer["modelVersion"]) == ("STOP", "gemini-3-pro")
    assert answer["usageMetadata"]["totalTokenCount"] == 12
    params = model.asked[0].params
    assert params["max_output_tokens"] == 100
    assert params["tools"][0]["parameters"]["properties"] == {"amount": {"type": "integer"}}


async def test_gemini_is_streamed_as_google_does(client: Client) -> None:
    headers = {"x-goog-api-key": KEY}
    async with client.session.post(f"{client.world.head}{STREAM}?alt=sse", json=GEMINI, headers=headers) as answer:
        assert (answer.status, answer.content_type) == (200, "text/event-stream")
        text = await answer.text()
    chunks = [json.loads(block.removeprefix("data: ")) for block in text.split("\n\n") if block.startswith("data: ")]
    parts = [part for chunk in chunks for part in chunk["candidates"][0]["content"]["parts"]]
    assert [sorted(part.keys() - {"thoughtSignature"}) for part in parts] == [
        ["text", "thought"],
        ["text"],
        ["functionCall"],
    ]
    assert ["finishReason" in chunk["candidates"][0] for chunk in chunks] == [False, False, True]


@pytest.mark.parametrize("path", [GENERATE, STREAM])
async def test_failures_and_bad_requests_of_gemini_are_in_its_form(client: Client, model: Scripted, path: str) -> None:
    headers = {"x-goog-api-key": KEY}
    bodies: list[dict[str, Any]] = [{}, {"contents": []}, {"contents": 3}, {"contents": [{"parts": [{}]}]}]
    for body in bodies:
        status, answer = await client.post(path, body, headers=headers)
        assert (status, answer["error"]["code"], answer["error"]["status"]) == (422, 422, "INVALID_ARGUMENT")
    assert not model.asked
    model.answer = RolloutError("model_failed", "out of order", retryable=True)  # type: ignore[arg-type]
    status, answer = await client.post(path, GEMINI, headers=headers)
    assert (status, answer["error"]["status"]) == (500, "INTERNAL")
    assert "out of order" in answer["error"]["message"]


async def test_a_key_in_the_url_opens_nothing(client: Client) -> None:
    status, _ = await client.post(f"{GENERATE}?key={KEY}", GEMINI, headers={})
    assert status == 401


async def test_calls_of_a_rollout_in_the_path_share_its_affinity(served: World, model: Scripted) -> None:
    for prefix in ("/ng-rollout/7-1", "/ng-rollout/7-1/training-token-capture"):
        async with openai.AsyncOpenAI(base_url=f"{served.head}{prefix}/v1", api_key=KEY, max_retries=0) as sdk:
            await sdk.responses.create(model="policy", input="hi")
            await sdk.chat.completions.create(model="policy", messages=[{"role": "user", "content": "hi"}])
    assert {request.session for request in model.asked} == {"7-1"}
    assert len(model.asked) == 4


async def test_calls_without_a_rollout_have_no_affinity(sdk: openai.AsyncOpenAI, model: Scripted) -> None:
    for _ in range(2):
        await sdk.responses.create(model="policy", input="hi")
    assert len({request.session for request in model.asked}) == 2


async def test_a_rollout_that_is_no_id_is_not_found(client: Client, model: Scripted) -> None:
    for rollout in ["-x", "~x", "a%20b", "x" * 200]:
        headers = {"Authorization": f"Bearer {KEY}"}
        status, _ = await client.post(f"/ng-rollout/{rollout}/v1/responses", {"input": "x"}, headers=headers)
        assert status == 404, rollout
        assert not model.asked


@pytest.mark.parametrize("prefix", ["", "/ng-rollout/x"])
async def test_the_bridge_continues_no_reply_by_its_id(client: Client, model: Scripted, prefix: str) -> None:
    headers = {"Authorization": f"Bearer {KEY}"}
    status, first = await client.post(f"{prefix}/v1/responses", {"input": "one"}, headers=headers)
    assert status == 200
    body = {"input": "two", "previous_response_id": first["id"]}
    status, answer = await client.post(f"{prefix}/v1/responses", body, headers=headers)
    assert status == 422
    assert f"no reply that is kept here has the id {first['id']!r}; send all items in" in answer["error"]["message"]
    assert len(model.asked) == 1


async def test_models_are_listed_as_openai_does(sdk: openai.AsyncOpenAI, served: World) -> None:
    assert [model.id async for model in sdk.models.list()] == [served.name("policy")]


async def test_a_model_is_asked_by_its_name_at_its_port_or_below_its_prefix(
    client: Client, served: World, model: Scripted
) -> None:
    headers = {"Authorization": f"Bearer {KEY}"}
    name = served.name("policy")
    for url in ("/v1/responses", f"{served.at('policy')}/v1/responses", f"/models/{name}/v1/responses"):
        assert (await client.post(url, {"input": "x", "model": name}, headers=headers))[0] == 200
    assert len(model.asked) == 3


PATHS: dict[str, dict[str, Any]] = {
    "/v1/responses": {"input": "hi"},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}]},
    "/v1/messages": ANTHROPIC,
}


async def test_a_model_that_fails_is_told_in_the_dialect(client: Client, model: Scripted) -> None:
    for path in PATHS:
        for stream in [False, True]:
            model.answer = RolloutError("model_failed", "out of order", retryable=True)  # type: ignore[arg-type]
            headers = {"Authorization": f"Bearer {KEY}"}
            status, body = await client.post(path, PATHS[path] | {"stream": stream}, headers=headers)
            assert status == 500, (path, stream)
            assert "out of order" in body["error"]["message"]
            assert body["error"]["type"] in ("server_error", "api_error")


async def test_a_request_that_does_not_fit_is_told_in_the_dialect_and_asks_nobody(
    client: Client, model: Scripted
) -> None:
    for path in PATHS:
        for body in [b"", b"{", b"[]", b"{}", b'{"input": 3}', b'{"messages": 1}', b'{"stream": 1}', b"\xff"]:
            status, answer = await client.post(path, body, headers={"Authorization": f"Bearer {KEY}"})
            assert status == 422, (path, body)
            assert answer["error"]["type"] == "invalid_request_error"
            assert not model.asked


async def test_a_stream_that_waits_is_kept_alive_and_a_late_failure_ends_it(
    client: Client, model: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gymq.ext.http.model_calls.PING_EVERY_S", 0.02)
    model.hold = asyncio.Event()
    model.answer = {"no": "response"}
    headers = {"Authorization": f"Bearer {KEY}"}
    url = client.world.head + "/v1/responses"
    async with client.session.post(url, json={"input": "x", "stream": True}, headers=headers) as answer:
        assert (await answer.content.readline()).startswith(b":")
        model.hold.set()
        rest = await answer.text()
    assert '"type":"error"' in rest
    assert "response.completed" not in rest


@pytest.mark.parametrize("stream", [False, True])
async def test_who_hangs_up_stops_the_model(client: Client, model: Scripted, stream: bool) -> None:
    model.hold = asyncio.Event()
    headers = {"Authorization": f"Bearer {KEY}"}
    asking = asyncio.create_task(client.post("/v1/responses", {"input": "x", "stream": stream}, headers=headers))
    await until(lambda: model.asked)
    asking.cancel()
    await until(lambda: model.num_cancelled == 1)


async def test_calls_of_a_rollout_stay_with_one_replica(empty_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    replicas = [Scripted(), Scripted()]
    for replica in replicas:
        await empty_world.add_model(model=replica)
    bridge = await empty_world.start_bridge()
    await until(lambda: len(bridge._routes._models.get(empty_world.name("policy"), ())) == 2)
    async with openai.AsyncOpenAI(base_url=empty_world.head, api_key="none", max_retries=0) as sdk:
        for turn in range(4):
            for rollout in range(8):
                of_rollout = sdk.with_options(base_url=f"{empty_world.head}/ng-rollout/r{rollout}/v1")
                await of_rollout.responses.create(model="policy", input=f"turn {turn}")
    sessions = [{request.session for request in replica.asked} for replica in replicas]
    assert not sessions[0] & sessions[1]
    assert len(sessions[0] | sessions[1]) == 8
