from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from gymq.workers.models.azure_openai_model.worker import AzureOpenAIModel
from gymq.workers.models.openai_model.tests.mock_server import MockServer, starting

pytest.importorskip("openai", reason="pip install 'gymq[azure]'")

KEY = "a-very-secret-key-0123456789"

Start = Callable[..., Awaitable[AzureOpenAIModel]]


@pytest.fixture
async def start(server: MockServer) -> AsyncIterator[Start]:
    """Starts workers that ask the server, and stops them."""
    async with starting(
        AzureOpenAIModel,
        openai_base_url=server.url.removesuffix("/v1"),
        openai_api_key=KEY,
        openai_model="my-deployment",
        default_query={"api-version": "2024-10-21"},
        num_concurrent_requests=8,
    ) as start:
        yield start
