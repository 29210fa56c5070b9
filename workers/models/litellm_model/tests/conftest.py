from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from gymq.workers.models.litellm_model.worker import LiteLLMModel
from gymq.workers.models.openai_model.tests.mock_server import MockServer, starting

KEY = "a-very-secret-key-0123456789"

Start = Callable[..., Awaitable[LiteLLMModel]]


@pytest.fixture
async def start(server: MockServer) -> AsyncIterator[Start]:
    """Starts workers that ask the server, and stops them."""
    options = {"openai_base_url": server.url.removesuffix("/v1"), "openai_api_key": KEY}
    async with starting(LiteLLMModel, **options) as start:
        yield lambda model, **more: start(openai_model=model, **more)
