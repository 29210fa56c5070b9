"""A TCP connection to the server that a test can cut, while everybody else's stays."""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit


class Proxy:
    """Passes bytes on to a server; use it with `async with`."""

    def __init__(self, url: str) -> None:
        self._to = urlsplit(url)
        self._is_cut = False
        self._writers: set[asyncio.StreamWriter] = set()
        self.url = ""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._on_client, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.url = self._to._replace(netloc=f"{self._to.username}:{self._to.password}@127.0.0.1:{port}").geturl()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.cut()
        self._server.close()

    def cut(self) -> None:
        """End all connections, and let no new one come about."""
        self._is_cut = True
        for writer in self._writers:
            writer.close()

    def mend(self) -> None:
        self._is_cut = False

    async def _on_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            writer.close()
            return
        server_reader, server_writer = await asyncio.open_connection(self._to.hostname, self._to.port)
        self._writers |= {writer, server_writer}
        await asyncio.gather(_pass_on(reader, server_writer), _pass_on(server_reader, writer))
        self._writers -= {writer, server_writer}


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()
