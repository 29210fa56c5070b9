"""A search service that finds nothing."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def mocked(worker: Any) -> AsyncIterator[None]:
    async def request(_call: str, _arguments: dict[str, Any]) -> dict[str, Any]:
        return {"results": []}

    async def no_sleep(_seconds: float) -> None:
        pass

    start = worker.start

    async def start_without_network() -> None:
        await start()
        worker.service.request = request
        worker.service.sleep = no_sleep

    worker.start = start_without_network
    yield
