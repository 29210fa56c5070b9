"""What routes that show the state of a bus share, whichever server they are part of."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import pydantic
from aiohttp import web

from gymq.bus import Bus
from gymq.data.failure_status import StatusError
from gymq.ext.http.requests import check_key
from gymq.processes.background import is_set_within

NEXT_BUS_S = 15.0  # several times what a server takes to start


@dataclass(kw_only=True)
class ReadContext:
    """Everything needed to show the state of a bus, and who may see it."""

    api_key: pydantic.SecretStr | None = None  # bearer token; None: every client that can connect may ask
    body_timeout_s: float = 300.0  # for a request to arrive
    bus: Bus = field(init=False)  # once `has_bus` is set; another one may replace it
    has_bus: asyncio.Event = field(default_factory=asyncio.Event)
    draining: bool = False
    logs: Path | None = None  # folder of the workers' logs, where they are on this machine
    tokenizer: Path | None = None  # file or folder with the policy's tokenizer: tokens are shown as text
    may_change: bool = True  # whether runs may be cancelled, requeued and described
    has_workers: bool = True  # False: it is a store without its cluster, where nothing is in flight
    notice: Callable[[], str] = str  # returns what a reader has to know of the cluster; empty: all is well

    def admit(self, request: web.Request) -> None:
        """Check whether a request may be served.

        Raises:
            StatusError: 401 it lacks the key; 503 the server is shutting down.
        """
        if self.api_key is not None:
            check_key(request, self.api_key.get_secret_value())
        if self.draining:
            raise StatusError(503, "shutting_down", "the bridge is shutting down")

    async def current_bus(self) -> Bus:
        """Return the bus, waiting while there is none.

        Raises:
            StatusError: 503; it takes too long.
        """
        if not await is_set_within(self.has_bus, NEXT_BUS_S):
            raise StatusError(503, "no_server", self.notice() or "the stored runs cannot be read now")
        return self.bus


class ReadRoutes(Protocol):
    """Routes that the entry points `gymq.routes` add to a bridge; each is called with the bridge's context."""

    def routes(self) -> Sequence[web.RouteDef]: ...

    def read_from(self, bus: Bus) -> None:
        """Serve requests from this bus."""

    def close(self) -> None: ...
