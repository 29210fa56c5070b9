from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

import gymq
from workers.models.openai_model import endpoint
from workers.models.openai_model.tests.stand_in import StandIn
from workers.models.openai_model.worker import OpenAIModel

KEY = "sk-a-very-secret-key-0123456789"

Start = Callable[..., Awaitable[OpenAIModel]]


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
async def server() -> AsyncIterator[StandIn]:
    async with StandIn() as server:
        yield server


@pytest.fixture
async def start(server: StandIn) -> AsyncIterator[Start]:
    """Starts workers that ask the server, and stops them."""
    async with AsyncExitStack() as stack:

        async def started(**options: Any) -> OpenAIModel:
            defaults = {"openai_base_url": server.url, "openai_api_key": KEY, "openai_model": "served"}
            worker = OpenAIModel({**defaults, **options}, name="policy_model")
            await worker.start()
            stack.push_async_callback(worker.stop)
            return worker

        yield started


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The waits between tries, in seconds; they are skipped."""
    seen: list[float] = []

    async def sleep(seconds: float) -> None:
        seen.append(seconds)

    monkeypatch.setattr(endpoint, "sleep", sleep)
    return seen


async def ask(worker: OpenAIModel, timeout_s: float = 30.0, **params: Any) -> dict[str, Any]:
    params = {"input": [{"role": "user", "content": "Hi"}], **params}
    async with asyncio.timeout(20.0):  # so that a test of waiting fails instead of waiting itself
        return await worker.respond(gymq.ModelRequest(params, "run/0/0", "run/0/0", timeout_s))


async def failure(worker: OpenAIModel, timeout_s: float = 30.0, **params: Any) -> gymq.RolloutError:
    with pytest.raises(gymq.RolloutError) as caught:
        await ask(worker, timeout_s, **params)
    return caught.value
