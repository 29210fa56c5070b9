"""A real `vllm serve` with a very small policy, behind `vllm_model`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio
from gymq.workers.models.openai_model.tests.mock_server import starting
from gymq.workers.models.vllm_model.engine import Engine
from gymq.workers.models.vllm_model.worker import VLLMModel

import gymq
from gymq import responses
from gymq.model import ModelMemory
from tests.support.compatibility import record
from tests.support.waiting import until

from .served import SERVED, START_S, Served, serving
from .tiny_policy import ADD, POLICY, asked

pytestmark = [pytest.mark.vllm, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(START_S + 300.0)]

SERVERS = "a real `vllm serve`, of the package for CPUs"
MAX_MODEL_LEN = 2048  # as long as the checkpoint allows
TOO_LONG = "What is 3 + 4? " * MAX_MODEL_LEN
ENDLESS: dict[str, Any] = {"metadata": {"extra_body": json.dumps({"ignore_eos": True})}}

Start = Callable[..., Awaitable[VLLMModel]]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """One server for all tests."""
    folder = tmp_path_factory.mktemp("serve")
    parts = {"max_model_len": MAX_MODEL_LEN, "reasoning_parser": "qwen3"}
    async with serving(folder, environment={"VLLM_SERVER_DEV_MODE": "1"}, **parts) as served:
        yield served


@pytest_asyncio.fixture(loop_scope="session")
async def start(server: Served) -> AsyncIterator[Start]:
    """Starts workers that ask the server."""
    async with starting(
        VLLMModel,
        base_url=f"{server.root}/v1",
        api_key="none",
        model=SERVED,
        return_token_id_information=True,
        uses_reasoning_parser=True,
    ) as start:
        yield start


@pytest.mark.parametrize("named", [False, True], ids=["asks /tokenize", "ids in the reply"])
async def test_a_tool_is_called_and_its_output_goes_back(start: Start, named: bool) -> None:
    model = await start(request_prompt_and_generation_token_ids=named)
    request = asked("What is 3 + 4?", tools=[ADD], temperature=0.0)
    first = await model.respond(request)
    (call,) = responses.function_calls(first)
    assert (call["name"], json.loads(call["arguments"] or "")) == ("add", {"a": 3, "b": 4})
    items = [*request.params["input"], *first["output"], responses.function_call_output(call["call_id"], "7")]
    second = await model.respond(replace(asked(items, tools=[ADD]), memory=ModelMemory(request.memory.kept)))
    for reply in (first, second):
        item = reply["output"][-1]
        assert len(item["generation_token_ids"]) == len(item["generation_log_probs"]) == reply["usage"]["output_tokens"]
        assert len(item["prompt_token_ids"]) == reply["usage"]["input_tokens"]
        assert all(log_prob <= 0.0 for log_prob in item["generation_log_probs"])
    assert request.sampling["log_probs"] == "processed"


async def test_reasoning_that_the_server_separates_is_an_item(start: Start) -> None:
    reply = await (await start()).respond(asked("What is 3 + 4?", temperature=0.0))
    assert [item["type"] for item in reply["output"]] == ["reasoning"]
    assert reply["output"][0]["generation_token_ids"]


async def test_100_turns_are_one_sequence_of_tokens(start: Start) -> None:
    model = await start(tokenizer=str(POLICY))
    items: list[dict[str, Any]] = []
    kept, known = None, list[int]()
    for turn in range(100):
        items = [*items, responses.user_message(f"{turn % 10}?")]
        request = replace(asked(items, max_output_tokens=2 + turn % 5), memory=ModelMemory(kept))
        reply = await model.respond(request)
        kept, item = request.memory.kept, reply["output"][-1]
        prompt = list(item["prompt_token_ids"])
        assert prompt[: len(known)] == known
        assert len(prompt) == reply["usage"]["input_tokens"]
        known = [*prompt, *item["generation_token_ids"]]
        items = [*items, *reply["output"]]
    record("Engines: conversations as one sequence of tokens", "vLLM", SERVERS, "100 turns of text")


DIALECTS: dict[str, dict[str, Any]] = {
    "chat": {},
    "tokens": {"tokenizer": str(POLICY)},
    "completions": {"use_completions_api": True},
    "responses": {"is_responses_native": True, "return_token_id_information": False},
}


@pytest.mark.parametrize("options", DIALECTS.values(), ids=DIALECTS)
async def test_a_conversation_that_does_not_fit_ends_as_a_cut_reply(start: Start, options: dict[str, Any]) -> None:
    reply = await (await start(**options)).respond(asked(TOO_LONG))
    assert reply["incomplete_details"] == {"reason": "max_output_tokens"}
    assert responses.output_text(reply) == ""


@pytest.mark.parametrize("options", DIALECTS.values(), ids=DIALECTS)
async def test_a_longer_reply_than_the_model_can_give_fails_for_good(start: Start, options: dict[str, Any]) -> None:
    if options.get("is_responses_native"):
        pytest.skip("in this dialect vLLM gives as much as there is room for")
    with pytest.raises(gymq.RolloutError, match="cannot be greater than max_model_len") as caught:
        await (await start(**options)).respond(asked("Hi", max_output_tokens=2 * MAX_MODEL_LEN))
    assert not caught.value.retryable


async def test_responses_of_the_server_itself(start: Start) -> None:
    model = await start(is_responses_native=True, return_token_id_information=False)
    request = asked("What is 3 + 4?", tools=[ADD], temperature=0.0)
    first = await model.respond(request)
    (call,) = responses.function_calls(first)
    assert json.loads(call["arguments"] or "") == {"a": 3, "b": 4}
    items = [*request.params["input"], *first["output"], responses.function_call_output(call["call_id"], "7")]
    second = await model.respond(asked(items, tools=[ADD], temperature=0.0))
    assert second["status"] == "completed"


@pytest.mark.parametrize("dialect", ["chat", "tokens", "responses"])
@pytest.mark.parametrize("arguments", ['{"a": 3', "", "[3]", '{"a": 3}}'])
async def test_a_call_whose_arguments_are_not_json_does_not_end_the_conversation(
    start: Start, dialect: str, arguments: str
) -> None:
    call = {"type": "function_call", "call_id": "call_1", "name": "add", "arguments": arguments}
    question, output = responses.user_message("What is 3 + 4?"), responses.function_call_output("call_1", "not JSON")
    items: list[Any] = [question, call, output]
    reply = await (await start(**DIALECTS[dialect])).respond(asked(items, tools=[ADD], max_output_tokens=8))
    assert reply["usage"]["output_tokens"] > 0


@pytest.mark.parametrize(
    ("options", "params", "said"),
    [
        ({"model": "other"}, {}, "`other` does not exist"),
        ({}, {"temperature": -1.0}, "temperature must be non-negative"),
        ({"extra_body": {"top_k": "many"}}, {}, "top_k"),
    ],
)
async def test_what_the_server_refuses_fails_with_its_reason(
    start: Start, options: dict[str, Any], params: dict[str, Any], said: str
) -> None:
    model = await start(return_token_id_information=False, **options)
    with pytest.raises(gymq.RolloutError, match=said):
        await model.respond(asked("What is 3 + 4?", **params))


async def test_a_server_that_is_paused_is_waited_for_and_what_it_aborts_is_continued(
    start: Start, server: Served
) -> None:
    model = await start(use_completions_api=True, request_prompt_and_generation_token_ids=True)
    aborted = server.num_aborted()
    long = asked("Hi", max_output_tokens=MAX_MODEL_LEN // 2, **ENDLESS)
    running = asyncio.create_task(model.respond(long))
    await until(lambda: server.num_running() > 0 or running.done())
    assert server.post("/pause?mode=abort") is not None
    assert not running.done()
    await until(lambda: server.num_aborted() > aborted)
    (engine,) = model.endpoints()
    assert isinstance(engine, Engine)
    try:
        await until(lambda: engine.reported is not None and engine.reported.is_paused)
        new = asyncio.create_task(model.respond(replace(asked("Hi", max_output_tokens=4), session="run/1/0")))
        await until(lambda: model.waits()["the engines are paused"] == 1 or new.done())
        assert not new.done()
        assert not running.done()
    finally:
        assert server.post("/resume") is not None
    item = (await running)["output"][-1]
    assert len(item["generation_token_ids"]) == len(item["generation_log_probs"]) == MAX_MODEL_LEN // 2
    assert (await new)["status"] in ("completed", "incomplete")
    record("Engines: `/pause`", "vLLM", SERVERS, "waited for; what it aborts is continued")


async def test_a_request_that_is_given_up_ends_in_the_server(start: Start, server: Served) -> None:
    model = await start()
    await model.respond(asked("Hi", max_output_tokens=1))  # the server was examined
    answering = asyncio.create_task(model.respond(asked("Hi", **ENDLESS)))
    await until(lambda: server.num_running() > 0 or answering.done())
    assert not answering.done()
    answering.cancel()
    await asyncio.gather(answering, return_exceptions=True)
    await until(lambda: server.num_running() == 0)
