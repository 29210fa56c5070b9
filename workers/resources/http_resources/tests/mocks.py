"""The example server, on a free port."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gymq.workers.resources.http_resources.service import HttpServer
from gymq.workers.resources.http_resources.tests.servers import counting
from gymq.workers.resources.http_resources.worker import HttpResources


@asynccontextmanager
async def mocked(worker: HttpResources) -> AsyncIterator[None]:
    async with counting() as (_, url):
        worker.server = HttpServer(url, 60.0, 64_000_000)
        yield
