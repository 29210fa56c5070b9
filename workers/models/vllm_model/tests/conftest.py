from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

import gymq
from workers.models.openai_model import endpoint
from workers.models.openai_model.tests.stand_in import StandIn
from workers.models.vllm_model.worker import VLLMModel

KEY = "a-very-secret-key-0123456789"

Start = Callable[..., Awaitable[VLLMModel]]


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
    """Starts workers that ask the server unless told otherwise, and stops them."""
    async with AsyncExitStack() as stack:

        async def started(**options: Any) -> VLLMModel:
            defaults = {
                "base_url": server.url,
                "api_key": KEY,
                "model": "served",
                "return_token_id_information": False,
                "uses_reasoning_parser": True,
            }
            worker = VLLMModel({**defaults, **options}, name="policy_model")
            await worker.start()
            stack.push_async_callback(worker.stop)
            return worker

        yield started


@pytest.fixture
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits between tries are skipped."""

    async def sleep(_seconds: float) -> None:
        return None

    monkeypatch.setattr(endpoint, "sleep", sleep)


async def ask(worker: VLLMModel, session: str = "run/0/0/1", **params: Any) -> dict[str, Any]:
    params = {"input": [{"role": "user", "content": "Hi"}], **params}
    async with asyncio.timeout(20.0):
        return await worker.respond(gymq.ModelRequest(params, session, "run/0/0", 30.0))


async def ask_chat(worker: VLLMModel, **params: Any) -> dict[str, Any]:
    params = {"messages": [{"role": "user", "content": "Hi"}], **params}
    async with asyncio.timeout(20.0):
        return await worker.respond_chat(gymq.ModelRequest(params, "run/0/0/1", "run/0/0", 30.0))


async def failure(worker: VLLMModel, **params: Any) -> gymq.RolloutError:
    with pytest.raises(gymq.RolloutError) as caught:
        await ask(worker, **params)
    return caught.value
