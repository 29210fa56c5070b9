"""The bridge itself: its routes, its start and its end."""

from __future__ import annotations

import logging
import re
import secrets
import socket
from pathlib import Path
from typing import Self

from aiohttp import web

from gymq.bus import Bus
from gymq.bus.rpc.calls import Calls
from gymq.bus.rpc.routing import RoutedCalls, Routes
from gymq.ext.http.context import ReadRoutes
from gymq.ext.http.memory import MemoryBudget
from gymq.ext.http.origin import OriginCheck
from gymq.ext.http.server import HttpServer
from gymq.ext.nemo_gym.agent_routes import AgentRoutes
from gymq.ext.nemo_gym.context import Context
from gymq.ext.nemo_gym.cookies import SessionCookies
from gymq.ext.nemo_gym.directory import Directory
from gymq.ext.nemo_gym.head_routes import HeadRoutes
from gymq.ext.nemo_gym.metrics import MetricsRoutes
from gymq.ext.nemo_gym.model_routes import ModelRoutes
from gymq.ext.nemo_gym.resources_routes import ResourcesRoutes
from gymq.ext.nemo_gym.rollouts import Rollouts
from gymq.ext.nemo_gym.settings import BridgeSettings
from gymq.ext.shared.addresses import is_loopback
from gymq.extensions import extensions
from gymq.processes.failing import OnFailureAwait
from gymq.redaction import hide

log = logging.getLogger("gymq.ext.nemo_gym")

LARGE_BODIES_BYTES = 512 << 20  # of large request bodies that are being read, together


class Bridge:
    """Serves HTTP for the workers on a bus; use it with `async with`."""

    def __init__(self, bus: Bus, directory: Directory, settings: BridgeSettings, *, logs: Path | None = None) -> None:
        """Prepare a bridge; it does not listen yet.

        Args:
            bus: connected as the role `bridge`.
            logs: folder of the workers' logs, which the viewer shows.

        Raises:
            GymqError: the tokenizer of the settings cannot be read.
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
            settings=settings,
            api_key=settings.api_key,
            body_timeout_s=settings.body_timeout_s,
            tokenizer=settings.tokenizer,
            bus=bus,
            logs=logs,
            directory=directory,
            calls=RoutedCalls(Calls(bus), self._routes),
            rollouts=rollouts,
            bodies=MemoryBudget(LARGE_BODIES_BYTES),
        )
        hosts = (settings.host, directory.head_host, *(place.host for place in directory), *settings.allowed_hosts)
        self._added: list[ReadRoutes] = [found.load()(self._context) for found in extensions("routes")]
        for added in self._added:
            added.read_from(bus)
        self._server = HttpServer(OriginCheck(hosts, settings.host, with_key=settings.api_key is not None))

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
            log.warning("anyone who can reach %s can use the bridge: the setting `api_key` is not set", settings.host)
        await self._routes.start()
        await self.rollouts.start()
        ports = [settings.port, *(place.port for place in self._context.directory)]
        routes = self._all_routes()
        async with OnFailureAwait(self.rollouts.stop), OnFailureAwait(self._server.close):
            await self._server.start(routes, settings.host, ports)
            await self.rollouts.cancel_orphans()  # not before: a bridge that has the port is alive
        return self

    async def __aexit__(self, *_: object) -> None:
        """Take no new requests, finish those in flight within `drain_s`, and answer the rest with an error."""
        self._context.draining = True
        await self._server.wait_idle(self._settings.drain_s)
        await self.rollouts.stop()
        await self._server.wait_idle(1.0)
        await self._server.close()
        for added in self._added:
            added.close()

    def _all_routes(self) -> list[web.RouteDef]:
        context = self._context
        agents = AgentRoutes(context)
        secret = self._settings.session_secret
        cookies = SessionCookies(
            secret.get_secret_value() if secret else secrets.token_hex(32), self._settings.session_max_age_s
        )
        return [
            *HeadRoutes(context).routes(),
            *(route for added in self._added for route in added.routes()),
            *(MetricsRoutes(context).routes() if self._settings.metrics else ()),
            *agents.routes(),
            *ModelRoutes(context, agents).routes(),
            *ResourcesRoutes(context, cookies).routes(),
        ]


def _default_name(port: int) -> str:
    """Return a name that the next bridge at this address has too."""
    host = re.sub(r"[^A-Za-z0-9_-]", "-", socket.gethostname())[:24]
    return f"bridge-{host}-{port}"
