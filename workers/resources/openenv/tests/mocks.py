"""The example server, on a free port."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from gymq.workers.resources.openenv.example_server import app
from gymq.workers.resources.openenv.worker import OpenEnvironment


@asynccontextmanager
async def serving(application: web.Application) -> AsyncIterator[str]:
    """A server's address."""
    runner = web.AppRunner(application, shutdown_timeout=1.0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def mocked(worker: OpenEnvironment) -> AsyncIterator[None]:
    async with serving(app()) as url:
        worker.options = worker.options.model_copy(update={"base_url": url})
        yield
