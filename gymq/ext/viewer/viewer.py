"""The viewer without a bridge: runs and rollouts in a browser, from any store. It starts nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Self

from aiohttp import web

from gymq.bus import Bus
from gymq.errors import PortTaken
from gymq.ext.http.context import ReadContext
from gymq.ext.http.origin import OriginCheck
from gymq.ext.http.requests import alive
from gymq.ext.http.server import HttpServer
from gymq.ext.shared.addresses import is_loopback, reachable
from gymq.ext.viewer.routes import WebRoutes

VIEWER_PORT = 11800  # of `gymq view`: the same address each time, unless something else is there


class Viewer:
    """Serves the viewer of a bus; use it with `async with`."""

    def __init__(
        self,
        bus: Bus | None,
        host: str,
        port: int | None = None,
        *,
        logs: Path | None = None,
        tokenizer: Path | None = None,
        may_change: bool = False,
        has_workers: bool = True,
        notice: Callable[[], str] = str,
    ) -> None:
        """Prepare a viewer; it does not listen yet.

        Args:
            bus: the bus with the runs; None: requests wait for `read_from`.
            host: address to listen on.
            port: port to listen on; None: the first free one from `VIEWER_PORT` on.
            logs: folder of the workers' logs, where they are on this machine.
            tokenizer: file or folder with the tokenizer of the policy, with which tokens are shown as text.
            may_change: whether runs may be cancelled, requeued and described; only where no other machine can connect,
                since a viewer has no key.
            has_workers: False for a store without its cluster: nothing of it is in flight.
            notice: returns a sentence about the cluster that the pages show; empty: none.
        """
        self._host = host
        self._port = port
        self._may_change = may_change and is_loopback(host)
        self._context = ReadContext(
            logs=logs,
            tokenizer=tokenizer,
            may_change=self._may_change,
            has_workers=has_workers,
            notice=notice,
        )
        self._server = HttpServer(OriginCheck([host], host, with_key=False))
        self._web = WebRoutes(self._context)
        if bus is not None:
            self._web.read_from(bus)

    @property
    def port(self) -> int:
        """Port on which the viewer listens; it is known once it listens."""
        assert self._port is not None
        return self._port

    @property
    def url(self) -> str:
        """Return what to open in a browser."""
        return f"http://{reachable(self._host)}:{self.port}/ui/"

    def leave_bus(self) -> None:
        """Have requests wait for the next bus."""
        self._context.has_bus.clear()

    def read_from(self, bus: Bus, *, has_workers: bool, is_copy: bool) -> None:
        """Show the runs of another bus.

        Args:
            has_workers: False for a store without its cluster.
            is_copy: it is a copy of the store, in which changes would be lost.
        """
        self._context.has_workers = has_workers
        self._context.may_change = self._may_change and not is_copy
        self._web.read_from(bus)

    async def __aenter__(self) -> Self:
        """Start to listen.

        Raises:
            PortTaken: the address is not available.
        """
        ports = range(VIEWER_PORT, VIEWER_PORT + 50) if self._port is None else [self._port]
        routes = [web.get("/", alive), *self._web.routes()]
        for port in ports:
            try:
                await self._server.start(routes, self._host, [port])
            except PortTaken:
                if port == ports[-1]:
                    raise
                continue
            self._port = port
            break
        return self

    async def __aexit__(self, *_: object) -> None:
        self._context.draining = True
        await self._server.close()
        self._web.close()
