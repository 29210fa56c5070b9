"""A search service that finds nothing, and a web without pages."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from gymq.workers.resources.google_search.pages import PageError


@asynccontextmanager
async def mocked(worker: Any) -> AsyncIterator[None]:
    async def search(_query: str) -> tuple[int, str, bytes]:
        return 200, "", b"{}"

    async def fetch(url: str) -> tuple[int, str, bytes]:
        raise PageError(f"{url} is not there")

    start = worker.start

    async def start_without_network() -> None:
        await start()
        worker.service.request = search
        worker.pages.fetch = fetch

    worker.start = start_without_network
    yield
