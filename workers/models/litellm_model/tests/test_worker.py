"""Whole exchanges with servers that imitate providers, each in its own dialect, and what goes wrong in them."""

from __future__ import annotations

import importlib.util
import json
from typing import Any

import pytest
from gymq.workers.models.litellm_model.tests.conftest import KEY, Start
from gymq.workers.models.litellm_model.worker import LiteLLMModel
from gymq.workers.models.openai_model import endpoint
from gymq.workers.models.openai_model.tests.conftest import ask, failure
from gymq.workers.models.openai_model.tests.mock_server import MockServer, as_json, error
from gymq.workers.models.openai_model.tests.replies import completion

import gymq
from gymq.authoring import OptionsError

needs_library = pytest.mark.skipif(
    importlib.util.find_spec("litellm") is None, reason="needs pip install 'gymq[litellm]'"
)
# What pydantic says of litellm's own types, at the first import of a provider.
pytestmark = pytest.mark.filterwarnings("ignore:Items? .* the `ReadOnly` qualifier")

TOOL = {
    "type": "function",
    "name": "add",
    "description": "Adds.",
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
    "strict": False,
}
CALL = {"name": "add", "arguments": {"a": 1}}

ANTHROPIC = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-sonnet-4-5",
    "content": [{"type": "text", "text": "Hello"}, {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 1}}],
    "stop_reason": "tool_use",
    "usage": {"input_tokens": 11, "output_tokens": 5},
}
GEMINI = {
    "candidates": [
        {
            "content": {
                "role": "model",
                "parts": [{"text": "Hello"}, {"functionCall": {"name": "add", "args": {"a": 1}}}],
            },
            "finishReason": "STOP",
            "index": 0,
        }
    ],
    "usageMetadata": {"promptTokenCount": 11, "candidatesTokenCount": 5, "totalTokenCount": 16},
}
OLLAMA = {
    "model": "llama3",
    "created_at": "2026-01-01T00:00:00Z",
    "message": {
        "role": "assistant",
        "content": "Hello",
        "tool_calls": [{"function": {"name": "add", "arguments": {"a": 1}}}],
    },
    "done": True,
    "done_reason": "stop",
    "prompt_eval_count": 11,
    "eval_count": 5,
}
BEDROCK = {
    "output": {
        "message": {
            "role": "assistant",
            "content": [{"text": "Hello"}, {"toolUse": {"toolUseId": "t1", "name": "add", "input": {"a": 1}}}],
        }
    },
    "stopReason": "tool_use",
    "usage": {"inputTokens": 11, "outputTokens": 5, "totalTokens": 16},
    "metrics": {"latencyMs": 1},
}
CALLS = [{"id": "t1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}]
CHAT = completion("Hello")
CHAT["choices"][0]["message"]["tool_calls"] = CALLS
CHAT["choices"][0]["finish_reason"] = "tool_calls"

# What each provider is asked at, where it gets the key, how long the reply may be, and what it answers.
PROVIDERS: dict[str, tuple[str, tuple[str, str], list[str], dict[str, Any]]] = {
    "anthropic/claude-sonnet-4-5": ("/v1/messages", ("x-api-key", KEY), ["max_tokens"], ANTHROPIC),
    "gemini/gemini-2.5-flash": (
        "/models/gemini-2.5-flash:generateContent",
        ("x-goog-api-key", KEY),
        ["generationConfig", "max_output_tokens"],
        GEMINI,
    ),
    "ollama_chat/llama3": ("/api/chat", ("authorization", f"Bearer {KEY}"), ["options", "num_predict"], OLLAMA),
    "bedrock/converse/anthropic.claude-3-5-sonnet-20240620-v1:0": (
        "/model/anthropic.claude-3-5-sonnet-20240620-v1%3A0/converse",
        ("authorization", f"Bearer {KEY}"),
        ["inferenceConfig", "maxTokens"],
        BEDROCK,
    ),
    "openai/gpt-4o": ("/chat/completions", ("authorization", f"Bearer {KEY}"), ["max_tokens"], CHAT),
}


@needs_library
@pytest.mark.parametrize("model", ["openai/gpt-4o", "anthropic/claude-sonnet-4-5", "gemini/gemini-2.5-flash"])
async def test_a_provider_is_left_alone_for_as_long_as_it_wants(
    start: Start, server: MockServer, waits: list[float], model: str
) -> None:
    server.answers = [error("429 Too Many Requests", "slow down", Retry_After="2"), as_json(PROVIDERS[model][3])]
    await ask(await start(model))
    assert [wait > 2.0 for wait in waits] == [True]  # alone, the first wait is 1 s at most


@needs_library
@pytest.mark.parametrize("model", PROVIDERS)
async def test_a_provider_is_asked_in_its_own_dialect(start: Start, server: MockServer, model: str) -> None:
    path, (header, value), place_of_limit, answer = PROVIDERS[model]
    server.answers = [as_json(answer)]
    region = {"litellm_params": {"aws_region_name": "us-east-1"}} if model.startswith("bedrock") else {}
    reply = await ask(await start(model, **region), max_output_tokens=50, tools=[TOOL])
    (asked,) = server.asked
    assert asked.target.partition("?")[0] == path
    assert asked.headers[header] == value
    limit: Any = asked.body
    for name in place_of_limit:
        limit = limit[name]
    assert limit == 50
    assert "Adds." in json.dumps(asked.body)
    message, call = reply["output"]
    assert message["content"][0]["text"] == "Hello"
    assert {"name": call["name"], "arguments": json.loads(call["arguments"])} == CALL
    assert (reply["usage"]["input_tokens"], reply["usage"]["output_tokens"]) == (11, 5)


@needs_library
async def test_a_conversation_with_calls_arrives_whole(start: Start, server: MockServer) -> None:
    server.answers = [as_json(ANTHROPIC)]
    said = [
        {"role": "user", "content": "1 + 1?"},
        {"type": "function_call", "call_id": "t1", "name": "add", "arguments": '{"a": 1}'},
        {"type": "function_call_output", "call_id": "t1", "output": "2"},
    ]
    await ask(await start("anthropic/claude-sonnet-4-5"), input=said, tools=[TOOL])
    roles = [message["role"] for message in server.asked[0].body["messages"]]
    parts = [part["type"] for message in server.asked[0].body["messages"] for part in message["content"]]
    assert (roles, parts) == (["user", "assistant", "user"], ["text", "tool_use", "tool_result"])


@needs_library
async def test_reasoning_becomes_an_item(start: Start, server: MockServer) -> None:
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
    server.answers = [as_json({**ANTHROPIC, "content": [thinking, {"type": "text", "text": "Hello"}]})]
    reply = await ask(await start("anthropic/claude-sonnet-4-5"))
    assert [item["type"] for item in reply["output"]] == ["reasoning", "message"]


@needs_library
async def test_a_rate_limit_is_waited_out(start: Start, server: MockServer) -> None:
    limited = as_json({"type": "error", "error": {"type": "rate_limit_error", "message": "slow down"}}, "429 Slow")
    server.answers = [limited, as_json(ANTHROPIC)]
    worker = await start("anthropic/claude-sonnet-4-5")
    assert (await ask(worker))["output"]
    assert (len(server.asked), worker.num_retries()) == (2, 1)


@needs_library
async def test_a_refused_key_can_be_cured_and_is_not_shown(start: Start, server: MockServer) -> None:
    server.answers = [error("401 Unauthorized", f"the key {KEY} is wrong")]
    failed = await failure(await start("openai/gpt-4o"))
    assert (failed.failure_class, failed.curable, failed.retryable) == (gymq.FailureClass.MODEL_FAILED, True, False)
    assert "401" in str(failed)
    assert KEY not in str(failed)


@needs_library
@pytest.mark.parametrize(
    ("model", "answer"),
    [
        (
            "anthropic/claude-sonnet-4-5",
            {"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long: 9 > 8"}},
        ),
        ("openai/gpt-4o", {"error": {"message": "maximum context length is 8", "code": "context_length_exceeded"}}),
    ],
)
async def test_a_full_context_is_an_empty_reply_that_is_incomplete(
    start: Start, server: MockServer, model: str, answer: dict[str, Any]
) -> None:
    server.answers = [as_json(answer, "400 Bad Request")]
    reply = await ask(await start(model))
    assert reply["incomplete_details"] == {"reason": "max_output_tokens"}


@needs_library
async def test_a_bad_request_is_not_repeated(start: Start, server: MockServer) -> None:
    server.answers = [error("400 Bad Request", "temperature: too high")]
    failed = await failure(await start("openai/gpt-4o"))
    assert (failed.retryable, len(server.asked)) == (False, 1)
    assert "temperature: too high" in str(failed)


@needs_library
async def test_a_server_that_fails_is_asked_again(start: Start, server: MockServer) -> None:
    server.answers = [as_json({"error": "oops"}, "500 Oops"), as_json(CHAT)]
    assert (await ask(await start("openai/gpt-4o")))["output"]


@needs_library
async def test_the_deadline_ends_a_request(start: Start, server: MockServer) -> None:
    async def never(_asked: Any) -> Any:
        await server.hung_up.wait()

    server.reply = never
    failed = await failure(await start("openai/gpt-4o"), timeout_s=0.5)
    assert failed.failure_class is gymq.FailureClass.DEADLINE_EXCEEDED


@needs_library
async def test_headers_and_further_parameters_arrive(start: Start, server: MockServer) -> None:
    server.answers = [as_json(CHAT)]
    more = {"seed": 7, "temperature": 0.5, "max_tokens": 9}
    options = {"openai_default_headers": {"x-team": "blue"}, "litellm_params": more}
    await ask(await start("openai/gpt-4o", **options), max_output_tokens=50)
    assert server.asked[0].headers["x-team"] == "blue"
    assert {name: server.asked[0].body[name] for name in more} == {**more, "max_tokens": 50}


@needs_library
async def test_a_model_without_a_known_provider_is_refused() -> None:
    with pytest.raises(OptionsError, match="knows no provider of 'nobodys-model'"):
        await LiteLLMModel({"openai_model": "nobodys-model"}).start()


@pytest.mark.parametrize("name", ["api_key", "api_base", "mock_response", "stream"])
def test_a_parameter_that_gymq_sets_itself_is_refused(name: str) -> None:
    with pytest.raises(OptionsError, match=f"litellm_params: {name} cannot be given here"):
        LiteLLMModel({"openai_model": "openai/gpt-4o", "litellm_params": {name: "x"}})


def test_secrets_among_the_parameters_are_hidden() -> None:
    secret = "an-aws-secret-0123456789"
    options = {"openai_model": "bedrock/x", "litellm_params": {"aws_secret_access_key": secret}}
    worker = LiteLLMModel(options)
    assert secret in worker.options.secrets()
    assert secret not in repr(worker.options)
    hiding = endpoint.Endpoint("http://x", headers={}, secrets=worker.options.secrets(), max_concurrent_requests=None)
    assert hiding.redacted(f"it was {secret}") == "it was ***"
