"""Accept connections. When file descriptors run out, log once and close idle connections.

asyncio's own way to accept tries again at once, as often as the backlog is long, with a traceback for each try.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import socket
from collections.abc import Callable
from itertools import takewhile
from typing import Any

from aiohttp import web

from gymq.ext.http.requests import Handler
from gymq.processes.background import RunningTasks
from gymq.processes.failing import OnFailure

log = logging.getLogger("gymq.ext.http.connections")

MOST_ACCEPTED_AT_ONCE = 64
HEAD_S = 30.0  # for the first request to be sent, headers and all
SWEEP_EVERY_S = 5.0
WARN_EVERY_S = 60.0
KEPT_FREE = 128  # descriptors reserved for everything but connections

_ABSENT = frozenset({errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL})
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class Listener:
    """Accepts connections for an aiohttp server. Used from `open` to `close`.

    Where connections have taken all descriptors but a few, a new one takes the place of the one that has said nothing
    for longest: first of those that never sent a request, then of those that wait between two. Where all are being
    served, new ones wait in the backlog.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._sockets: list[socket.socket] = []
        self._new: dict[asyncio.BaseTransport, float] = {}  # that have sent no request yet, by when they came
        self._idle: dict[asyncio.BaseTransport, float] = {}  # between two requests, by when the last one ended
        self._starting = RunningTasks()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._warned_at = -WARN_EVERY_S
        self._most = _most_connections()

    @property
    def ports(self) -> list[int]:
        """Ports on which the server listens."""
        return [found.getsockname()[1] for found in self._sockets]

    async def open(self, make_protocol: Callable[[], asyncio.Protocol], host: str | None, port: int) -> None:
        """Listen at an address; may be called for several.

        Args:
            make_protocol: returns the protocol of a connection, such as `runner.server`.
            host: name or address; None: all addresses.
            port: 0: one that is free.

        Raises:
            OSError: it cannot be listened on.
        """
        found = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        addresses = dict.fromkeys((family, address) for family, *_, address in found)
        absent: OSError | None = None
        opened = 0
        for family, address in addresses:
            try:
                listening = _bound(family, address, is_only=len(addresses) == 1)
            except OSError as error:
                if error.errno not in _ABSENT:
                    raise
                absent = error  # such as IPv6 on a machine without it
                continue
            self._sockets.append(listening)
            self._watch(listening, make_protocol)
            opened += 1
        if absent is not None and not opened:
            raise absent
        self._timers.setdefault("sweep", self._loop.call_later(SWEEP_EVERY_S, self._sweep))

    def close(self) -> None:
        """Stop accepting connections; open ones stay."""
        for timer in self._timers.values():
            timer.cancel()
        for listening in self._sockets:
            self._loop.remove_reader(listening)
            listening.close()
        self._sockets.clear()

    @web.middleware
    async def serving(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Track which connections are being served; a middleware for every application that uses this listener."""
        transport = request.transport
        if transport is None:
            return await handler(request)
        self._new.pop(transport, None)
        self._idle.pop(transport, None)
        try:
            return await handler(request)
        finally:
            self._idle[transport] = self._loop.time()

    def _watch(self, listening: socket.socket, make_protocol: Callable[[], asyncio.Protocol]) -> None:
        if listening.fileno() >= 0:
            self._loop.add_reader(listening, self._accept, listening, make_protocol)

    def _accept(self, listening: socket.socket, make_protocol: Callable[[], asyncio.Protocol]) -> None:
        for _ in range(MOST_ACCEPTED_AT_ONCE):
            try:
                connection, _ = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    raise
                self._warn(f"no connection can be accepted: {error.strerror}")
                for _ in range(MOST_ACCEPTED_AT_ONCE):
                    self._make_room()
                self._pause(listening, make_protocol)
                return
            connection.setblocking(False)
            self._starting.start(self._start(connection, make_protocol))
            # The kernel hands out the lowest free descriptor, so its number approximates how many are open.
            if connection.fileno() >= self._most:
                self._warn(f"{self._most} descriptors are in use; connections that say nothing are closed for new ones")
                if not self._make_room():
                    self._pause(listening, make_protocol)
                    return

    async def _start(self, connection: socket.socket, make_protocol: Callable[[], asyncio.Protocol]) -> None:
        try:
            transport, _ = await self._loop.connect_accepted_socket(make_protocol, connection)
        except OSError:
            connection.close()  # The client has already disconnected.
            return
        self._new[transport] = self._loop.time()

    def _pause(self, listening: socket.socket, make_protocol: Callable[[], asyncio.Protocol]) -> None:
        self._loop.remove_reader(listening)
        again = self._loop.call_later(0.2, self._watch, listening, make_protocol)
        self._timers[f"accept {listening.fileno()}"] = again

    def _make_room(self) -> bool:
        """Close the connection that has said nothing for longest; False if there is none."""
        for waiting in (self._new, self._idle):
            while waiting:
                transport = next(iter(waiting))
                del waiting[transport]
                if not transport.is_closing():
                    _abort(transport)
                    return True
        return False

    def _sweep(self) -> None:
        """Close those that were given time enough to send a request, and forget those that are closed."""
        came_before = self._loop.time() - HEAD_S
        for transport in list(takewhile(lambda found: self._new[found] < came_before, self._new)):
            _abort(transport)
        for waiting in (self._new, self._idle):
            for transport in [found for found in waiting if found.is_closing()]:
                del waiting[transport]
        self._timers["sweep"] = self._loop.call_later(SWEEP_EVERY_S, self._sweep)

    def _warn(self, message: str) -> None:
        now = self._loop.time()
        if now - self._warned_at >= WARN_EVERY_S:
            self._warned_at = now
            log.warning("%s; raise the limit of open files (ulimit -n) if they are needed", message)


def _abort(transport: Any) -> None:
    transport.abort()


def _bound(family: int, address: Any, *, is_only: bool) -> socket.socket:
    """Return a listening socket.

    Args:
        is_only: whether no other one listens at the port; then `::` means all addresses, those of IPv4 too.
    """
    made = socket.socket(family, socket.SOCK_STREAM)
    with OnFailure(made.close):
        made.setblocking(False)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if is_only else 1)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # connections inherit it
        made.bind(address)
        made.listen(16_384)  # the system may allow fewer
    return made


def _most_connections() -> int:
    """Return the first descriptor that is reserved, where connections end."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft - min(KEPT_FREE, soft // 4) if soft != resource.RLIM_INFINITY else 1 << 30
