from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from gymq.workers.models.openai_model.tests.mock_server import MockServer, starting
from gymq.workers.models.vllm_model.tests.examined import is_examination, next_token
from gymq.workers.models.vllm_model.worker import VLLMModel

import gymq

KEY = "a-very-secret-key-0123456789"

Start = Callable[..., Awaitable[VLLMModel]]


@pytest.fixture
async def start(server: MockServer) -> AsyncIterator[Start]:
    """Starts workers that ask the server unless options name another, and stops them."""
    server.aside = lambda body: next_token(body) if is_examination(body) else None
    async with starting(
        VLLMModel,
        base_url=server.url,
        api_key=KEY,
        model="served",
        return_token_id_information=False,
        uses_reasoning_parser=True,
    ) as start:
        yield start


async def ask(worker: VLLMModel, session: str = "run/0/0/1", **params: Any) -> dict[str, Any]:
    params = {"input": [{"role": "user", "content": "Hi"}], **params}
    async with asyncio.timeout(300):
        return await worker.respond(gymq.ModelRequest(params, session, "run/0/0", 30.0))


async def ask_chat(worker: VLLMModel, **params: Any) -> dict[str, Any]:
    params = {"messages": [{"role": "user", "content": "Hi"}], **params}
    async with asyncio.timeout(300):
        return await worker.respond_chat(gymq.ModelRequest(params, "run/0/0/1", "run/0/0", 30.0))


async def failure(worker: VLLMModel, **params: Any) -> gymq.RolloutError:
    with pytest.raises(gymq.RolloutError) as caught:
        await ask(worker, **params)
    return caught.value
