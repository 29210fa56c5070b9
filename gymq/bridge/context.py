"""Context that the routes of a bridge share, and how a request finds its instance."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web

from gymq.bridge.directory import Directory, InstanceAddress
from gymq.bridge.failures import BridgeError, not_found
from gymq.bridge.http import JSON, check_key, read_body
from gymq.bridge.memory import MemoryBudget
from gymq.bridge.rollouts import Rollouts
from gymq.bridge.settings import BridgeSettings
from gymq.bridge.token_texts import TokenTexts
from gymq.bus import Bus
from gymq.bus.rpc.routing import RoutedCalls
from gymq.protocol.instances import Kind

INSTANCE = "instance"  # of a path with a prefix, such as /models/{instance}/v1/responses
NEXT_BUS_S = 15.0  # several times what a server takes to start


@dataclass(kw_only=True)
class ReadContext:
    """Context of routes that only read: everything needed to show the state of a bus."""

    settings: BridgeSettings
    bus: Bus = field(init=False)  # once `has_bus` is set; another one may replace it
    has_bus: asyncio.Event = field(default_factory=asyncio.Event)
    draining: bool = False
    logs: Path | None = None  # folder of the workers' logs, where they are on this machine
    token_texts: TokenTexts | None = None  # the tokenizer of the policy, if it is known
    may_change: bool = True  # whether runs may be cancelled, requeued and described
    has_workers: bool = True  # False: it is a store without its cluster, where nothing is in flight
    notice: Callable[[], str] = str  # returns what a reader has to know of the cluster; empty: all is well

    def admit(self, request: web.Request) -> None:
        """Check whether a request may be served.

        Raises:
            BridgeError: 401 it lacks the key; 503 the bridge is shutting down.
        """
        if self.settings.api_key is not None:
            check_key(request, self.settings.api_key.get_secret_value())
        if self.draining:
            raise BridgeError(503, "shutting_down", "the bridge is shutting down")

    async def current_bus(self) -> Bus:
        """Return the bus, waiting while there is none.

        Raises:
            BridgeError: 503; it takes too long.
        """
        try:
            async with asyncio.timeout(NEXT_BUS_S):
                await self.has_bus.wait()
        except TimeoutError:
            raise BridgeError(503, "no_server", self.notice() or "the stored runs cannot be read now") from None
        return self.bus


@dataclass(kw_only=True)
class Context(ReadContext):
    """One bridge, as its routes see it."""

    bus: Bus
    directory: Directory
    calls: RoutedCalls
    rollouts: Rollouts
    bodies: MemoryBudget

    async def body(self, request: web.Request) -> bytes:
        """Return a request's body, within the limits.

        Raises:
            BridgeError: 415 if it is not JSON, which pages of other origins cannot send without permission; or as
                `read_body`.
        """
        settings = self.settings
        kind = request.content_type
        if request.body_exists and not (kind == JSON or kind.endswith("+json")):
            raise BridgeError(415, "not_json", f"the body needs the header `Content-Type: {JSON}`, not {kind:.80}")
        return await read_body(
            request, max_bytes=settings.max_body_bytes, timeout_s=settings.body_timeout_s, budget=self.bodies
        )

    def place(self, request: web.Request) -> InstanceAddress | None:
        """Return the instance that the path or the port of a request names, or None.

        Raises:
            BridgeError: 404; there is no such instance.
        """
        name = request.match_info.get(INSTANCE)
        if name is None:
            transport = request.transport
            address = None if transport is None else transport.get_extra_info("sockname")
            return None if address is None else self.directory.at_port(address[1])
        place = self.directory.get(name)
        if place is None or f"/{place.kind}/" != request.path[: len(place.kind) + 2]:
            raise not_found(f"there is no instance {request.path.split('/')[1]}/{name}")
        return place

    def place_of_kind(self, request: web.Request, kind: Kind) -> InstanceAddress:
        """Return the instance of a request, which must be of one kind; if none is named, the only one of the kind.

        Raises:
            BridgeError: 404; it is of another kind, or there are several.
        """
        place = self.place(request)
        if place is None:
            return self.only(kind, request.path)
        if place.kind != kind:
            raise not_found(f"{request.path} is served by {kind}; {place.name} belongs to the {place.kind}")
        return place

    def only(self, kind: Kind, path: str) -> InstanceAddress:
        """Return the one instance of a kind.

        Raises:
            BridgeError: 404; there are none or several.
        """
        places = self.directory.of_kind(kind)
        if len(places) != 1:
            names = ", ".join(place.name for place in places) or "none"
            raise not_found(f"name one of the {kind} in the path, as in /{kind}/NAME{path}; there are: {names}")
        return places[0]
