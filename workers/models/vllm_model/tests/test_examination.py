"""An engine is asked once how it samples; what a row leaves out is then sent, and recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from gymq.workers.models.openai_model.tests.mock_server import MockServer, as_json
from gymq.workers.models.vllm_model.tests.conftest import Start
from gymq.workers.models.vllm_model.tests.examined import is_examination, next_token
from gymq.workers.models.vllm_model.worker import VLLMModel

import gymq

NEUTRAL = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
LOG_PROBS = {"content": [{"token": "token_id:11", "logprob": -0.5}]}
REPLY = {
    "id": "c",
    "object": "chat.completion",
    "created": 1,
    "model": "served",
    "prompt_token_ids": [1],
    "choices": [
        {"index": 0, "finish_reason": "stop", "token_ids": [11], "logprobs": LOG_PROBS}
        | {"message": {"role": "assistant", "content": "a"}}
    ],
}
WITH_IDS = {"return_token_id_information": True, "request_prompt_and_generation_token_ids": True}


@pytest.fixture
def sampler(server: MockServer) -> Callable[..., None]:
    """Sets how the engine samples."""

    def set_to(**how: Any) -> None:
        server.aside = lambda body: next_token(body, **how) if is_examination(body) else None

    server.answers = [as_json(REPLY)]
    return set_to


async def sampling_of(worker: VLLMModel, **params: Any) -> dict[str, Any]:
    request = gymq.ModelRequest({"input": [{"role": "user", "content": "Hi"}], **params}, "run/0/0/1", "run/0/0", 30.0)
    async with asyncio.timeout(300):
        await worker.respond(request)
    return request.sampling


def sent(server: MockServer) -> dict[str, Any]:
    body = server.asked[-1].body
    return {name: body[name] for name in NEUTRAL if name in body}


@pytest.mark.parametrize(
    ("how", "filled", "log_probs"),
    [
        ({}, {}, "processed"),
        ({"default_temperature": 0.6}, NEUTRAL, "processed"),
        ({"log_probs": "raw"}, NEUTRAL, "raw"),
    ],
)
async def test_what_a_row_leaves_out_is_neutral_and_recorded(
    start: Start, server: MockServer, sampler: Any, how: Any, filled: Any, log_probs: str
) -> None:
    sampler(**how)
    worker = await start(**WITH_IDS)
    assert await sampling_of(worker) == {"temperature": 1.0, "log_probs": log_probs}
    assert sent(server) == filled


async def test_what_a_row_says_is_recorded(start: Start, sampler: Any) -> None:
    sampler()
    worker = await start(**WITH_IDS, sampling_overrides={"top_k": 20})
    asked = {"temperature": 0.7, "top_p": 1.0, "max_output_tokens": 5, "metadata": {"extra_body": '{"seed": 3}'}}
    expected = {"temperature": 0.7, "top_k": 20, "seed": 3, "max_tokens": 5, "log_probs": "processed"}
    assert await sampling_of(worker, **asked) == expected


async def test_a_base_model_is_examined_too(start: Start, server: MockServer, sampler: Any) -> None:
    sampler(log_probs="raw")
    choice = {"index": 0, "text": "a", "finish_reason": "stop", "token_ids": [11], "prompt_token_ids": [1]}
    log_probs = {"tokens": ["token_id:11"], "token_logprobs": [-0.5]}
    server.answers = [as_json({**REPLY, "choices": [{**choice, "logprobs": log_probs}]})]
    worker = await start(**WITH_IDS, use_completions_api=True)
    assert (await sampling_of(worker))["log_probs"] == "raw"
    assert sent(server) == NEUTRAL


@pytest.mark.parametrize(
    "answer", [{"error": {"message": "top_logprobs is not supported"}}, {"choices": [{"logprobs": None}]}]
)
async def test_an_engine_that_does_not_show_it_is_warned_of(
    start: Start, server: MockServer, sampler: Any, answer: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    server.aside = lambda body: answer if is_examination(body) else None
    worker = await start(**WITH_IDS)
    assert await sampling_of(worker) == {"temperature": 1.0}
    assert sent(server) == NEUTRAL
    assert "does not show what its log probs are of" in caplog.text


async def test_an_engine_is_examined_once_and_only_for_tokens(start: Start, server: MockServer, sampler: Any) -> None:
    examined: list[Any] = []
    sampler()
    answer = server.aside

    def counted(body: dict[str, Any]) -> dict[str, Any] | None:
        reply = answer(body)
        examined.extend([body] if reply else [])
        return reply

    server.aside = counted
    worker = await start(**WITH_IDS)
    await asyncio.gather(*[sampling_of(worker) for _ in range(4)])
    assert len(examined) == 3
    worker = await start()
    assert await sampling_of(worker) == {}
    assert len(examined) == 3
