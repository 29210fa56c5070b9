"""The head server: the addresses of all instances, and health checks."""

from __future__ import annotations

import os
import time

import msgspec
from aiohttp import web

from gymq.bus.discovery import find_workers
from gymq.ext.http.requests import alive, json_response
from gymq.ext.nemo_gym.context import Context
from gymq.ext.nemo_gym.openapi import document

HEAD_PATHS = frozenset({"/", "/health", "/openapi.json", "/global_config_dict_yaml", "/server_instances"})


class HeadRoutes:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._started = time.time()

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/", alive),
            web.get("/health", self.health),
            web.get("/openapi.json", self.openapi),
            web.get("/global_config_dict_yaml", self.config),
            web.get("/server_instances", self.instances),
        ]

    async def health(self, _request: web.Request) -> web.Response:
        """Return whether requests would be served now; 503 if not."""
        context = self._context
        problem = "shutting down" if context.draining else None if context.bus.is_connected else "NATS is away"
        body = {"status": problem or "ok", "waiting": context.rollouts.num_waiting}
        return json_response(msgspec.json.encode(body), 503 if problem else 200)

    async def openapi(self, _request: web.Request) -> web.Response:
        return json_response(msgspec.json.encode(document(self._context.settings.api_key is not None)))

    async def config(self, request: web.Request) -> web.Response:
        self._context.admit(request)
        return json_response(self._context.directory.config_body())

    async def instances(self, request: web.Request) -> web.Response:
        self._context.admit(request)
        running = {(found["name"], found["metadata"]["kind"]) for found in await find_workers(self._context.bus)}
        listed = [
            {
                "process_name": place.name,
                "name": place.implementation,
                "server_type": place.server_type,
                "host": place.host,
                "port": place.port,
                "url": place.url,
                "status": "running" if (place.name, place.kind) in running else "missing",
                "pid": os.getpid(),
                "start_time": self._started,
            }
            for place in self._context.directory
        ]
        return json_response(msgspec.json.encode(listed))
