from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from gymq.workers.models.openai_model.tests.mock_server import MockServer, starting
from gymq.workers.models.openai_model.worker import OpenAIModel

import gymq

KEY = "sk-a-very-secret-key-0123456789"

Start = Callable[..., Awaitable[OpenAIModel]]


@pytest.fixture
async def start(server: MockServer) -> AsyncIterator[Start]:
    """Starts workers that ask the server, and stops them."""
    options = {"openai_base_url": server.url, "openai_api_key": KEY, "openai_model": "served"}
    async with starting(OpenAIModel, **options) as start:
        yield start


async def ask(worker: OpenAIModel, timeout_s: float = 30.0, **params: Any) -> dict[str, Any]:
    params = {"input": [{"role": "user", "content": "Hi"}], **params}
    async with asyncio.timeout(300):  # so that a test of waiting fails instead of waiting itself
        return await worker.respond(gymq.ModelRequest(params, "run/0/0", "run/0/0", timeout_s))


async def failure(worker: OpenAIModel, timeout_s: float = 30.0, **params: Any) -> gymq.RolloutError:
    with pytest.raises(gymq.RolloutError) as caught:
        await ask(worker, timeout_s, **params)
    return caught.value
