"""Servers for the tests: the example server on a free port, and one that answers by a script, byte by byte."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from gymq.workers.resources.http_resources.example_server import CounterServer


@asynccontextmanager
async def counting() -> AsyncIterator[tuple[CounterServer, str]]:
    """The example server, and its address."""
    server = CounterServer()
    runner = web.AppRunner(server.app(), access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield server, f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def http(status: int, body: object = None, *, length: int | None = None, **headers: str) -> bytes:
    """An answer as it goes over the wire. With a `length` beyond that of the body it is only half of one."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} Said", f"Content-Length: {len(content) if length is None else length}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "Connection: close", "", ""]).encode() + content


HANGS = b""


class Scripted:
    """Answers each path with what it was given, in turn; the last one stays. HANGS never answers."""

    def __init__(self, answers: dict[str, list[bytes]]) -> None:
        self._answers = {"/seed_session": [http(200, {})]} | answers
        self.requests: list[tuple[str, str, bytes]] = []  # path, cookie, body
        self.asked = asyncio.Event()
        self.hung_up = asyncio.Event()  # a client, on a request that hangs

    def paths(self) -> list[str]:
        return [path for path, _, _ in self.requests]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        try:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            fields = {name.lower(): value for name, _, value in (line.partition(": ") for line in head.split("\r\n"))}
            body = await reader.readexactly(int(fields.get("content-length", 0)))
            path = head.split(" ")[1]
            self.requests.append((path, fields.get("cookie", ""), body))
            self.asked.set()
            answers = self._answers[path]
            answer = answers.pop(0) if len(answers) > 1 else answers[0]
            if answer == HANGS:
                await reader.read()
                self.hung_up.set()
            writer.write(answer)
            await writer.drain()
        finally:
            writer.close()
