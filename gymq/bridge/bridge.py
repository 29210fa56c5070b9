"""The bridge itself: its sockets, its routes, and its end."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import socket
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from aiohttp import web

from gymq.bridge.agent_routes import AgentRoutes
from gymq.bridge.connections import Listener
from gymq.bridge.context import Context
from gymq.bridge.cookies import SessionCookies
from gymq.bridge.directory import Directory
from gymq.bridge.head_routes import HeadRoutes
from gymq.bridge.http import Handler, connections_log, told_in_json
from gymq.bridge.memory import MemoryBudget
from gymq.bridge.metrics import MetricsRoutes
from gymq.bridge.model_routes import ModelRoutes
from gymq.bridge.origin import OriginCheck, is_loopback
from gymq.bridge.resources_routes import ResourcesRoutes
from gymq.bridge.rollouts import Rollouts
from gymq.bridge.settings import BridgeSettings
from gymq.bridge.web import WebRoutes
from gymq.bus import Bus
from gymq.calls import Calls
from gymq.redaction import hide
from gymq.routing import RoutedCalls, Routes

log = logging.getLogger("gymq.bridge")

LARGE_BODIES_BYTES = 512 << 20  # of large request bodies that are being read, together
KEEP_ALIVE_S = 3630.0  # longer than clients and proxies keep idle connections, so that they close them and not we
MAX_HEADER_BYTES = 16_384


class PortTaken(Exception):
    """An address that the bridge cannot listen on; one sentence."""


class Bridge:
    """Serves HTTP for the workers on a bus; use it with `async with`."""

    def __init__(self, bus: Bus, directory: Directory, settings: BridgeSettings) -> None:
        """
        Args:
            bus: connected as the role `bridge`.
        """
        self._settings = settings
        self._routes = Routes(bus)
        rollouts = Rollouts(
            bus,
            settings.name or _default_name(settings.port),
            rollout_timeout_s=settings.rollout_timeout_s,
            queue_timeout_s=settings.queue_timeout_s,
        )
        self._context = Context(
            settings, directory, bus, RoutedCalls(Calls(bus), self._routes), rollouts, MemoryBudget(LARGE_BODIES_BYTES)
        )
        hosts = (settings.host, directory.head_host, *(place.host for place in directory), *settings.allowed_hosts)
        self._origins = OriginCheck(hosts, settings.host, with_key=settings.api_key is not None)
        self._listener: Listener
        self._runner: web.AppRunner | None = None
        self._in_hand = 0

    @property
    def rollouts(self) -> Rollouts:
        return self._context.rollouts

    async def __aenter__(self) -> Self:
        """Listen on the head server's port and on one for each instance.

        Raises:
            PortTaken: an address cannot be listened on.
            BusError
        """
        settings = self._settings
        for secret in (settings.api_key, settings.session_secret):
            if secret is not None:
                hide(secret.get_secret_value())
        if settings.api_key is None and not is_loopback(settings.host):
            log.warning("whoever reaches %s may use the bridge: the setting `api_key` is not set", settings.host)
        await self._routes.start()
        await self.rollouts.start()
        self._listener = Listener()
        self._runner = web.AppRunner(
            self._app(),
            handler_cancellation=True,  # who hangs up does not wait any more
            access_log=None,
            auto_decompress=False,  # compressed bodies are refused
            logger=connections_log,
            keepalive_timeout=KEEP_ALIVE_S,
            max_field_size=MAX_HEADER_BYTES,
            shutdown_timeout=0.1,  # what may finish has been given `drain_s` before
        )
        await self._runner.setup()
        try:
            ports = [settings.port, *(place.port for place in self._context.directory)]
            await self._listen(dict.fromkeys(ports))
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Take nothing new, finish what is in hand within `drain_s`, tell the rest."""
        self._context.draining = True
        loop = asyncio.get_running_loop()
        give_up = loop.time() + self._settings.drain_s
        while self._in_hand and loop.time() < give_up:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        await self._close()

    async def _close(self) -> None:
        await self.rollouts.stop()
        assert self._runner is not None
        for _ in range(50):  # those that were told that they wait in vain say so to their clients
            if not self._in_hand:
                break
            await asyncio.sleep(0.02)
        self._listener.close()
        await self._runner.cleanup()

    async def _listen(self, ports: Iterable[int]) -> None:
        assert self._runner is not None
        assert self._runner.server is not None
        for port in ports:
            try:
                await self._listener.open(self._runner.server, self._settings.host, port)
            except OSError as error:
                reason = error.strerror or str(error)
                raise PortTaken(f"the bridge cannot listen on {self._settings.host}:{port}: {reason}") from None

    def _app(self) -> web.Application:
        app = web.Application(middlewares=[self._listener.serving, self._counted, told_in_json, self._checked])
        context = self._context
        agents = AgentRoutes(context)
        secret = self._settings.session_secret
        cookies = SessionCookies(
            secret.get_secret_value() if secret else secrets.token_hex(32), self._settings.session_max_age_s
        )
        app.add_routes(HeadRoutes(context).routes())
        app.add_routes(WebRoutes(context).routes())
        if self._settings.metrics:
            app.add_routes(MetricsRoutes(context).routes())
        app.add_routes(agents.routes())
        app.add_routes(ModelRoutes(context, agents).routes())
        app.add_routes(ResourcesRoutes(context, cookies).routes())
        return app

    @web.middleware
    async def _counted(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self._in_hand += 1
        try:
            return await handler(request)
        finally:
            self._in_hand -= 1

    @web.middleware
    async def _checked(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self._origins.check(request)
        return await handler(request)


def _default_name(port: int) -> str:
    """A name that the next bridge at this address has too."""
    host = re.sub(r"[^A-Za-z0-9_-]", "-", socket.gethostname())[:24]
    return f"bridge-{host}-{port}"
