from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from gymq.workers.models.litellm_model.worker import LiteLLMModel
from gymq.workers.models.openai_model.tests.stand_in import StandIn

KEY = "a-very-secret-key-0123456789"

Start = Callable[..., Awaitable[LiteLLMModel]]


@pytest.fixture
async def start(server: StandIn) -> AsyncIterator[Start]:
    """Starts workers that ask the server, and stops them."""
    async with AsyncExitStack() as stack:

        async def started(model: str, **options: Any) -> LiteLLMModel:
            defaults = {"openai_base_url": server.url.removesuffix("/v1"), "openai_api_key": KEY, "openai_model": model}
            worker = LiteLLMModel({**defaults, **options}, name="policy_model")
            await worker.start()
            stack.push_async_callback(worker.stop)
            return worker

        yield started
