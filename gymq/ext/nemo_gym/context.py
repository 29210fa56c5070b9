"""Context that the routes of a bridge share, and how a request finds its instance."""

from __future__ import annotations

from dataclasses import dataclass

from aiohttp import web

from gymq.bus import Bus
from gymq.bus.rpc.routing import RoutedCalls
from gymq.data.failure_status import StatusError
from gymq.ext.http.context import ReadContext
from gymq.ext.http.errors import not_found
from gymq.ext.http.memory import MemoryBudget
from gymq.ext.http.requests import JSON, read_body
from gymq.ext.nemo_gym.directory import Directory, InstanceAddress
from gymq.ext.nemo_gym.rollouts import Rollouts
from gymq.ext.nemo_gym.settings import BridgeSettings
from gymq.protocol.instances import Kind

INSTANCE = "instance"  # of a path with a prefix, such as /models/{instance}/v1/responses


@dataclass(kw_only=True)
class Context(ReadContext):
    """One bridge, as its routes see it."""

    settings: BridgeSettings
    bus: Bus
    directory: Directory
    calls: RoutedCalls
    rollouts: Rollouts
    bodies: MemoryBudget

    async def body(self, request: web.Request) -> bytes:
        """Return a request's body, within the limits.

        Raises:
            StatusError: 415 if it is not JSON, which pages of other origins cannot send without permission; or as
                `read_body`.
        """
        settings = self.settings
        kind = request.content_type
        if request.body_exists and not (kind == JSON or kind.endswith("+json")):
            raise StatusError(415, "not_json", f"the body needs the header `Content-Type: {JSON}`, not {kind:.80}")
        return await read_body(
            request, max_bytes=settings.max_body_bytes, timeout_s=settings.body_timeout_s, budget=self.bodies
        )

    def place(self, request: web.Request) -> InstanceAddress | None:
        """Return the instance that the path or the port of a request names, or None.

        Raises:
            StatusError: 404; there is no such instance.
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
            StatusError: 404; it is of another kind, or there are several.
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
            StatusError: 404; there are none or several.
        """
        places = self.directory.of_kind(kind)
        if len(places) != 1:
            names = ", ".join(place.name for place in places) or "none"
            raise not_found(f"name one of the {kind} in the path, as in /{kind}/NAME{path}; there are: {names}")
        return places[0]
