"""A server's sockets: opened, checked for the origin of requests, and closed when no request is in flight."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from aiohttp import web

from gymq.errors import PortTaken
from gymq.ext.http.connections import Listener
from gymq.ext.http.origin import OriginCheck
from gymq.ext.http.requests import Handler, connections_log, errors_as_json
from gymq.processes.failing import OnFailureAwait


class HttpServer:
    """Serves routes over HTTP, from `start` to `close`."""

    def __init__(self, origins: OriginCheck | None = None) -> None:
        """Prepare a server; it does not listen yet.

        Args:
            origins: refuses requests that pages of other origins may have made; None: each request needs a key.
        """
        self.num_in_flight = 0
        self._origins = origins
        self._listener: Listener
        self._runner: web.AppRunner | None = None

    async def start(self, routes: Iterable[web.AbstractRouteDef], host: str, ports: Iterable[int]) -> None:
        """Listen at each port.

        Raises:
            PortTaken: an address cannot be listened on; then nothing is listened on.
        """
        self._listener = Listener()
        app = web.Application(middlewares=[self._listener.serving, self._counted, errors_as_json, self._checked])
        app.add_routes(routes)
        self._runner = web.AppRunner(
            app,
            handler_cancellation=True,  # who hangs up does not wait any more
            access_log=None,
            auto_decompress=False,  # compressed bodies are refused
            logger=connections_log,
            keepalive_timeout=3630.0,  # longer than clients and proxies keep idle connections, so that they close them
            max_field_size=16_384,
            shutdown_timeout=0.1,  # what may finish has been given its time before
        )
        await self._runner.setup()
        assert self._runner.server is not None
        async with OnFailureAwait(self.close):
            for port in dict.fromkeys(ports):
                try:
                    await self._listener.open(self._runner.server, host, port)
                except OSError as error:
                    reason = error.strerror or str(error)
                    raise PortTaken(f"{host}:{port}: cannot listen: {reason}; choose another port") from None

    @property
    def ports(self) -> list[int]:
        """Ports on which the server listens."""
        return self._listener.ports

    async def wait_idle(self, patience_s: float) -> None:
        """Wait until no request is in flight, but no longer than `patience_s` seconds."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + patience_s
        while self.num_in_flight and loop.time() < give_up:  # noqa: ASYNC110
            await asyncio.sleep(0.02)

    async def close(self) -> None:
        """Close all connections; requests that are still in flight are cancelled."""
        assert self._runner is not None
        self._listener.close()
        await self._runner.cleanup()

    @web.middleware
    async def _counted(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self.num_in_flight += 1
        try:
            return await handler(request)
        finally:
            self.num_in_flight -= 1

    @web.middleware
    async def _checked(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if self._origins is not None:
            self._origins.check(request)
        return await handler(request)
