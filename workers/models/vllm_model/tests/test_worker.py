"""Whole exchanges with an engine over HTTP."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from gymq.workers.models.openai_model.tests.mock_server import Answer, Asked, MockServer, as_json, error
from gymq.workers.models.openai_model.tests.replies import completion, response
from gymq.workers.models.vllm_model.tests.conftest import KEY, Start, ask, ask_chat, failure

import gymq
from gymq.model import ModelMemory
from gymq.protocol.packing import pack
from gymq.responses import errors, function_calls, output_text, overflowed
from gymq.testing import function_call

USER = {"role": "user", "content": "Hi"}
ADDED = {"type": "function_call_output", "call_id": "call_1", "output": "2"}
TOKENS: dict[str, list[Any]] = {
    "prompt_token_ids": [1, 2, 3],
    "generation_token_ids": [11, 12],
    "generation_log_probs": [-0.5, -0.25],
}


def _with_fixed_ids(output: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**item, "id": f"id_{item['type']}"} for item in output]


def sampled(text: str, num_prompt_tokens: int = 3, **members: Any) -> dict[str, Any]:
    """A completion as vLLM gives it when it is asked for log probs by token id."""
    reply = completion(text, **members)
    reply["usage"] = {**reply["usage"], "prompt_tokens": num_prompt_tokens}
    entries = [
        {"token": f"token_id:{token}", "logprob": log_prob, "bytes": None, "top_logprobs": []}
        for token, log_prob in zip(TOKENS["generation_token_ids"], TOKENS["generation_log_probs"], strict=True)
    ]
    reply["choices"][0]["logprobs"] = {"content": entries}
    return reply


async def test_key_headers_and_path(start: Start, server: MockServer) -> None:
    server.answers = [as_json(completion("Hello"))]
    await ask(await start(default_headers={"x-team": "blue"}))
    (asked,) = server.asked
    assert asked.target == "/v1/chat/completions"
    assert (asked.headers["authorization"], asked.headers["x-team"]) == (f"Bearer {KEY}", "blue")


async def test_a_base_url_without_v1_is_used_as_it_is(start: Start, server: MockServer) -> None:
    server.answers = [as_json(sampled("Hello")), as_json({"tokens": [1, 2, 3]})]
    base_url = server.url.removesuffix("/v1") + "/engine/"
    await ask(await start(base_url=base_url, return_token_id_information=True))
    assert [asked.target for asked in server.asked] == ["/engine/chat/completions", "/engine/tokenize"]


async def test_token_ids_of_two_turns_go_back_to_the_engine(start: Start, server: MockServer) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    server.answers = [
        as_json(sampled("", reasoning="One and one.", tool_calls=[call])),
        as_json({"count": 3, "tokens": [1, 2, 3]}),
        as_json(sampled("2", 6)),
        as_json({"tokens": [1, 2, 3, 11, 12, 4]}),
    ]
    worker = await start(return_token_id_information=True)
    first = await ask(worker)
    assert [item["type"] for item in first["output"]] == ["reasoning", "function_call"]
    assert {name: list(first["output"][1][name]) for name in TOKENS} == TOKENS
    pack(first)
    output = {"type": "function_call_output", "call_id": "call_1", "output": "2"}
    second = await ask(worker, input=[USER, *first["output"], output])
    assert list(second["output"][0]["prompt_token_ids"]) == [1, 2, 3, 11, 12, 4]
    history = server.asked[2].body["messages"]
    assert server.asked[3].body == {"model": "served", "messages": history}
    assert {name: list(history[1][name]) for name in TOKENS} == TOKENS
    assert (history[1]["reasoning"], history[1]["content"]) == ("One and one.", "")


async def test_a_conversation_that_is_remembered_is_sent_as_one_that_is_not(start: Start, server: MockServer) -> None:
    worker = await start(replace_developer_role_with_system=True)
    call = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    replies = [completion("", tool_calls=[call]), completion("<think>Two.</think>2"), completion("3")]
    new = [[{"role": "developer", "content": "Add."}, USER], [ADDED], [USER]]
    sent = []
    for remembers in (True, False):
        server.answers = [as_json(reply) for reply in replies]
        items: list[dict[str, Any]] = []
        kept = None
        for added in new:
            items = [*items, *added]
            params = {"input": items, "instructions": "Be brief."}
            request = gymq.ModelRequest(params, "run/0/0/1", "run/0/0", 30.0, ModelMemory(kept))
            reply = await worker.respond(request)
            assert reply["instructions"] == "Be brief."
            kept = request.memory.kept if remembers else None
            items = [*items, *_with_fixed_ids(reply["output"])]
        sent.append([asked.body for asked in server.asked])
        server.asked.clear()
    assert sent[0] == sent[1]
    assert len(sent[0][-1]["messages"]) == 6


async def test_of_a_conversation_that_is_remembered_only_new_items_are_checked(
    start: Start, server: MockServer
) -> None:
    worker = await start()
    server.answers = [as_json(completion("2")), as_json(completion("3")), as_json(completion("4"))]
    first = gymq.ModelRequest({"input": [USER]}, "run/0/0/1", "run/0/0", 30.0)
    items = [USER, *(await worker.respond(first))["output"], USER]
    broken = [{"type": "message", "role": "user"}, *items[1:]]  # no content: refused where it is looked at
    await worker.respond(gymq.ModelRequest({"input": broken}, "s", "r", 30.0, ModelMemory(first.memory.kept)))
    with pytest.raises(gymq.InvalidTask, match=r"input\[0\]"):
        await worker.respond(gymq.ModelRequest({"input": broken}, "s", "r", 30.0))
    wrong = [*items, {"type": "message", "role": "user"}]
    with pytest.raises(gymq.InvalidTask, match=r"input\[3\]"):  # counted from the first item
        await worker.respond(gymq.ModelRequest({"input": wrong}, "s", "r", 30.0, ModelMemory(first.memory.kept)))


@pytest.mark.parametrize(
    ("part", "warns"),
    [
        ({"type": "input_text", "text": "Hi"}, True),
        ({"type": "input_image", "image_url": "data:image/png;base64,AAAA"}, False),  # many tokens for the engine
    ],
)
async def test_a_prompt_that_the_tokenizer_makes_otherwise_is_warned_of(
    start: Start,
    server: MockServer,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    part: dict[str, Any],
    warns: bool,
) -> None:
    monkeypatch.setattr(errors, "_reported", set())
    server.answers = [as_json(sampled("Hello", 400)), as_json({"tokens": [1, 2, 3]})]
    reply = await ask(await start(return_token_id_information=True), input=[{"role": "user", "content": [part]}])
    assert list(reply["output"][-1]["prompt_token_ids"]) == [1, 2, 3]
    assert ("/tokenize gives other prompt tokens" in caplog.text) is warns


async def test_ids_in_the_reply_save_the_second_call(start: Start, server: MockServer) -> None:
    reply = sampled("Hello")
    reply["prompt_token_ids"], reply["choices"][0]["token_ids"] = [1, 2, 3], [11, 12]
    server.answers = [as_json(reply)]
    worker = await start(return_token_id_information=True, request_prompt_and_generation_token_ids=True)
    item = (await ask(worker))["output"][-1]
    assert {name: list(item[name]) for name in TOKENS} == TOKENS
    assert len(server.asked) == 1
    assert server.asked[0].body["return_token_ids"] is True


async def test_ids_that_differ_are_a_failure_that_names_the_engine(start: Start, server: MockServer) -> None:
    reply = sampled("Hello")
    reply["prompt_token_ids"], reply["choices"][0]["token_ids"] = [1, 2, 3], [11, 13]
    server.answers = [as_json(reply)]
    found = await failure(await start(return_token_id_information=True))
    assert found.failure_class is gymq.FailureClass.MODEL_FAILED
    assert str(server.port) in found.message
    assert "differ" in found.message


@pytest.mark.parametrize(
    "message",
    [
        "This model's maximum context length is 8 tokens. However, you requested 9",
        "max_tokens must be at least 1, got 0",
        "x" * 1000 + " maximum context length",
    ],
)
@pytest.mark.parametrize("native", [False, True])
async def test_an_overflow_is_an_incomplete_reply(start: Start, server: MockServer, message: str, native: bool) -> None:
    body = {"object": "error", "message": message, "type": "BadRequestError", "code": 400}
    server.answers = [as_json(body, "400 Bad Request")]
    reply = await ask(await start(is_responses_native=native))
    assert (reply["status"], reply["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert reply["usage"] is None


@pytest.mark.parametrize("status", ["404 Not Found", "422 Unprocessable Entity", "400 Bad Request"])
async def test_another_refusal_is_a_failure(start: Start, server: MockServer, status: str) -> None:
    text = "maximum context length" if status.startswith("404") else "no such thing"
    server.answers = [as_json({"message": text}, status)]
    found = await failure(await start())
    assert (found.failure_class, found.retryable) == (gymq.FailureClass.MODEL_FAILED, False)
    assert f"{status}: {text}" in found.message
    assert len(server.asked) == 1


async def test_more_tokens_than_any_context_has_are_the_fault_of_who_asks(start: Start, server: MockServer) -> None:
    message = "max_tokens=9999 cannot be greater than max_model_len=512. Please request fewer output tokens."
    server.answers = [as_json({"message": message}, "400 Bad Request")]
    found = await failure(await start(), max_output_tokens=9999)
    assert message in found.message
    assert not found.retryable


async def test_a_refusal_that_repeats_the_request_is_no_overflow(start: Start, server: MockServer) -> None:
    message = (
        "[{'type': 'value_error', 'loc': ('body',), 'msg': 'Value error, you can only use one kind of constraint', "
        "'input': {'messages': [{'role': 'user', 'content': 'What is a context length?'}], 'max_tokens': 100}}]"
    )
    server.answers = [as_json({"object": "error", "message": message, "code": 400}, "400 Bad Request")]
    found = await failure(await start(), max_output_tokens=100)
    assert "one kind of constraint" in found.message
    assert not found.retryable


async def test_an_overflow_of_the_tokenizer_is_a_failure(start: Start, server: MockServer) -> None:
    refusal = as_json({"message": "maximum context length"}, "400 Bad Request")
    server.answers = [as_json(sampled("Hello")), refusal]
    found = await failure(await start(return_token_id_information=True))
    assert "/tokenize: 400" in found.message


async def test_separate_reasoning_without_a_parser_is_an_error_of_the_configuration(
    start: Start, server: MockServer
) -> None:
    server.answers = [as_json(completion("2", reasoning="One and one."))]
    found = await failure(await start(uses_reasoning_parser=False))
    assert "uses_reasoning_parser is false" in found.message
    assert not found.retryable


async def test_null_reasoning_without_a_parser_is_none(start: Start, server: MockServer) -> None:
    server.answers = [as_json(completion("<think>hm</think>2", reasoning=None, reasoning_content=None))]
    reply = await ask(await start(uses_reasoning_parser=False))
    assert [item["type"] for item in reply["output"]] == ["message"]


async def test_after_nothing_but_reasoning_the_engine_is_not_asked_again_if_so_configured(
    start: Start, server: MockServer
) -> None:
    server.answers = [as_json(completion("2"))]
    thought = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]}
    assert (await ask(await start(), input=[USER, thought]))["status"] == "completed"
    stopped = await ask(await start(sequential_reasoning_allowed=False), input=[USER, thought])
    assert stopped["incomplete_details"] == {"reason": "content_filter"}
    assert len(server.asked) == 1


def with_call(**changed: Any) -> dict[str, Any]:
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    return completion(None, finish_reason="tool_calls", tool_calls=[{**call, **changed}])


@pytest.mark.parametrize(
    ("arguments", "sent"), [('{"a": 1}', {"a": 1}), ("", {}), ('{"a": ', {"__unparsed_arguments__": '{"a": '})]
)
@pytest.mark.parametrize("native", [False, True])
async def test_an_engine_gets_a_history_whose_arguments_are_objects(
    start: Start, server: MockServer, native: bool, arguments: str, sent: dict[str, Any]
) -> None:
    server.answers = [as_json(response("2") if native else completion("2"))]
    worker = await start(is_responses_native=native, uses_reasoning_parser=not native)
    called = {"type": "function_call", "call_id": "call_1", "name": "add", "arguments": arguments}
    await ask(worker, input=[USER, called, ADDED])
    [asked] = server.asked
    call = asked.body["input"][1] if native else asked.body["messages"][1]["tool_calls"][0]["function"]
    assert json.loads(call["arguments"]) == sent


def chat_history(arguments: str) -> list[dict[str, Any]]:
    call = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": arguments}}
    said = {"role": "assistant", "content": None, "tool_calls": [call]}
    return [USER, said, {"role": "tool", "tool_call_id": "call_1", "content": "2"}]


async def test_a_history_in_chat_has_arguments_that_are_objects(start: Start, server: MockServer) -> None:
    server.answers = [as_json(completion("2"))]
    await ask_chat(await start(), messages=chat_history('{"a": '))
    [asked] = server.asked
    [call] = asked.body["messages"][1]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"__unparsed_arguments__": '{"a": '}


async def test_a_refused_history_in_chat_is_cut(start: Start, server: MockServer) -> None:
    server.answers = [error("400 Bad Request", "unexpected role"), as_json(completion("3"))]
    reply = await ask_chat(await start(), messages=chat_history("{}"))
    assert (reply["choices"][0]["finish_reason"], reply["choices"][0]["message"]["content"]) == ("length", None)
    assert [len(asked.body["messages"]) for asked in server.asked] == [3, 1]


async def test_a_refused_history_is_cut(start: Start, server: MockServer) -> None:
    server.answers = [error("400 Bad Request", "unexpected role"), as_json(completion("3"))]
    called = {"type": "function_call", "call_id": "call_1", "name": "add", "arguments": "{}"}
    reply = await ask(await start(), input=[USER, called, ADDED])
    assert overflowed(reply)
    assert [len(asked.body["messages"]) for asked in server.asked] == [3, 1]


@pytest.mark.parametrize(
    ("changed", "arguments"),
    [
        ({"id": 7, "type": None}, "{}"),
        ({"function": {"name": "add", "arguments": {"a": 1}}}, '{"a": 1}'),
        ({"function": {"name": "add", "arguments": None}}, "{}"),
    ],
)
async def test_calls_that_are_slightly_off_are_read(
    start: Start, server: MockServer, changed: dict[str, Any], arguments: str
) -> None:
    server.answers = [as_json(with_call(**changed))]
    [call] = function_calls(await ask(await start()))
    assert (call["name"], call["arguments"]) == ("add", arguments)


async def test_a_native_response_without_what_repeats_the_request_is_filled(start: Start, server: MockServer) -> None:
    server.answers = [as_json({"output": response("Hello")["output"], "usage": {"input_tokens": 1.0}})]
    reply = await ask(await start(is_responses_native=True, uses_reasoning_parser=False), parallel_tool_calls=False)
    assert output_text(reply) == "Hello"
    assert (reply["tools"], reply["parallel_tool_calls"], reply["usage"]) == ([], False, None)


async def test_content_in_parts_is_read_with_its_tokens(start: Start, server: MockServer) -> None:
    reply = sampled("")
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    reply["choices"][0]["message"]["content"] = [thought, {"type": "text", "text": "Hello"}]
    server.answers = [as_json(reply), as_json({"tokens": [1, 2, 3]})]
    thoughts, message = (await ask(await start(return_token_id_information=True)))["output"]
    assert thoughts["summary"][0]["text"] == "hm"
    assert message["content"][0]["text"] == "Hello"
    assert list(message["generation_token_ids"]) == TOKENS["generation_token_ids"]


@pytest.mark.parametrize(
    "changed", [{"created": None}, {"usage": "none"}, {"id": 5}, {"usage": {"prompt_tokens": 2.5}}]
)
async def test_what_only_counts_costs_no_reply(start: Start, server: MockServer, changed: dict[str, Any]) -> None:
    server.answers = [Answer(b"\xef\xbb\xbf" + json.dumps({**completion("Hello"), **changed}).encode())]
    assert output_text(await ask(await start())) == "Hello"


@pytest.mark.parametrize(
    "reply",
    [
        {},
        {"choices": []},
        {"choices": [1]},
        {"choices": [{"message": None}]},
        {"choices": [{"message": {"tool_calls": [7]}}]},
        {"choices": [{"message": {"content": "a", "reasoning": ["b"]}}], "created": 1},
    ],
    ids=json.dumps,
)
async def test_an_unusable_reply_is_a_failure(start: Start, server: MockServer, reply: Any) -> None:
    server.answers = [as_json(reply)]
    found = await failure(await start())
    assert found.failure_class is gymq.FailureClass.MODEL_FAILED
    assert "unusable reply" in found.message


@pytest.mark.parametrize(
    ("params", "fault"),
    [
        ({"inputs": "x"}, "inputs: unknown field"),
        ({"input": []}, "input: no item"),
        ({"input": [{"type": "item_reference", "id": "i"}]}, "input: no item"),
        ({"metadata": {"extra_body": "{"}}, "metadata.extra_body"),
        ({"metadata": {"audio_path": "a.wav"}}, "metadata.audio_path"),
        ({"tool_choice": "required"}, "tool_choice"),
    ],
)
async def test_what_cannot_be_sent_is_the_fault_of_the_task(
    start: Start, server: MockServer, params: Any, fault: str
) -> None:
    found = await failure(await start(), **params)
    assert found.failure_class is gymq.FailureClass.INVALID_TASK
    assert fault in found.message
    assert server.asked == []


@pytest.mark.parametrize("most", [0, 4])
@pytest.mark.parametrize("native", [False, True])
async def test_a_length_that_no_reply_can_have_is_no_overflow(
    start: Start, server: MockServer, most: int, native: bool
) -> None:
    server.answers = [as_json({"message": f"max_tokens={most}, got 5."}, "400 Bad Request")]
    worker = await start(is_responses_native=native, extra_body={"min_tokens": 5})
    found = await failure(worker, max_output_tokens=most)
    assert (found.failure_class, server.asked) == (gymq.FailureClass.INVALID_TASK, [])
    assert f"tokens: {most} is less than" in found.message


async def test_a_native_request_passes_through(start: Start, server: MockServer) -> None:
    server.answers = [as_json(response("Hello", function_call("add", {})))]
    reply = await ask(await start(is_responses_native=True), instructions="Be brief.")
    assert reply == response("Hello", function_call("add", {}))
    (asked,) = server.asked
    assert asked.target == "/v1/responses"
    assert asked.body == {"input": [USER], "instructions": "Be brief.", "model": "served"}


async def test_a_native_reply_that_failed_is_a_failure(start: Start, server: MockServer) -> None:
    server.answers = [as_json({**response("Hello"), "status": "failed"})]
    assert "'failed' instead of" in (await failure(await start(is_responses_native=True))).message


async def test_a_chat_request_is_answered_in_chat(start: Start, server: MockServer) -> None:
    server.answers = [as_json(sampled("2", reasoning_content="Hm.")), as_json({"tokens": [1, 2, 3]})]
    reply = await ask_chat(
        await start(return_token_id_information=True), temperature="0.5", nonsense=1, top_logprobs=None
    )
    body = server.asked[0].body
    assert (body["temperature"], body["top_logprobs"], "nonsense" in body) == (0.5, 0, False)
    (choice,) = reply["choices"]
    assert choice["message"]["content"] == "<think>Hm.</think>2"
    assert {name: list(choice["message"][name]) for name in TOKENS} == TOKENS
    assert "logprobs" not in choice
    assert "reasoning_content" not in choice["message"]


async def test_an_overflow_in_chat_says_length(start: Start, server: MockServer) -> None:
    server.answers = [as_json({"message": "maximum context length"}, "400 Bad Request")]
    reply = await ask_chat(await start())
    assert reply["choices"] == [
        {"index": 0, "finish_reason": "length", "message": {"role": "assistant", "content": None}}
    ]


@pytest.mark.parametrize(
    ("params", "fault"),
    [
        ({"messages": []}, "messages: expected a list"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role: 'robot'"),
        ({"messages": [{"role": "user", "content": None}]}, "messages[0].content: expected text"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
        ({"messages": [{"role": {}, "content": "x"}]}, "messages[0].role: {} is not a role"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id: expected"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"id": "c"}]}]}, "messages[0].tool_calls[0]: "),
        ({"metadata": "x"}, "metadata: "),
        ({"temperature": "hot"}, "temperature: "),
        ({"tools": [1]}, "tools[0]: "),
        ({"stop": [None]}, "stop[0]: "),
        ({"stream": True}, "stream: only false"),
    ],
)
async def test_a_chat_request_that_does_not_fit_is_refused(start: Start, params: Any, fault: str) -> None:
    with pytest.raises(gymq.InvalidTask) as caught:
        await ask_chat(await start(), **params)
    assert fault in caught.value.message


async def test_the_calls_of_a_session_and_of_its_next_attempt_go_to_one_engine(
    start: Start, server: MockServer
) -> None:
    async with MockServer() as other:
        for engine in (server, other):
            engine.answers = [as_json(completion("Hello"))]
        worker = await start(base_url=[server.url, other.url])
        for attempt in range(10):
            await ask(worker, session=f"run/0/0/{attempt}")
        assert {len(server.asked), len(other.asked)} == {0, 10}
        for judge in range(40):
            await ask(worker, session=f"other/{judge}/0")
        assert min(len(server.asked), len(other.asked)) > 0


async def test_the_key_is_in_no_message(start: Start, server: MockServer) -> None:
    async def echo(asked: Asked) -> Any:
        return as_json({"message": f"denied: {asked.headers['authorization']}"}, "401 Unauthorized")

    server.reply = echo
    found = await failure(await start())
    assert "denied" in found.message
    assert KEY not in found.message


async def test_the_limit_holds_for_each_engine_and_replicas_divide_it(start: Start, server: MockServer) -> None:
    async def reply(_asked: Asked) -> Answer:
        await asyncio.sleep(0.001)
        return as_json(completion("Hello"))

    server.reply = reply
    worker = await start(max_concurrent_requests=4)
    worker.share(0, 2)
    await asyncio.gather(*(ask(worker, f"run/{index}/0/1") for index in range(8)))
    assert server.most_in_flight <= 2


async def test_cancelling_drops_the_connection_so_that_the_engine_stops(start: Start, server: MockServer) -> None:
    async def never(_asked: Asked) -> Answer:
        return await asyncio.get_running_loop().create_future()

    server.reply = never
    asking = asyncio.create_task(ask(await start()))
    await server.busy_with(1)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await asyncio.wait_for(server.hung_up.wait(), 300)
