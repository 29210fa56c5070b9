"""Health checks of `gymq up` for container engines and clusters."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from gymq.bridge.connections import Listener
from gymq.cli.shared.errors import UsageError
from gymq.cluster.host import raise_open_files
from gymq.cluster.launch import Cluster


@asynccontextmanager
async def health_at(host: str, port: int, cluster: Cluster) -> AsyncIterator[None]:
    """Answer `GET /health` while the block runs: 200 if everything serves, else 503 and what does not.

    A process that waits for a NATS server that is away counts as serving, since a restart would not help.

    Raises:
        UsageError: the port is taken, or the address is not one of this machine.
    """

    async def answer(_: web.Request) -> web.Response:
        missing = cluster.not_serving
        return web.json_response({"not_serving": missing}, status=503 if missing else 200)

    raise_open_files()
    listener = Listener()
    app = web.Application(middlewares=[listener.serving])
    app.router.add_get("/health", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        try:
            assert runner.server is not None
            await listener.open(runner.server, host, port)
        except OSError as error:
            raise UsageError(f"cannot listen at {host}:{port} for --health-port: {error.strerror}") from None
        yield
    finally:
        listener.close()
        await runner.cleanup()
