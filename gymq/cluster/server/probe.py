"""Questions to a server that need no client library."""

import asyncio
import contextlib

import msgspec

from gymq.cluster.server.config import MONITOR
from gymq.protocol.decoding import UNDECODABLE


class Info(msgspec.Struct):
    """The fields of the INFO line that gymq reads. A server sends it to every client that connects."""

    server_name: str
    version: str


class _Health(msgspec.Struct):
    status: str
    error: str = ""


class _HealthMessage(msgspec.Struct):
    data: _Health


async def read_info(host: str, port: int, timeout_s: float) -> Info | None:
    """Return what the server on this port says of itself, or None if no NATS server answers in time."""
    line = await _ask(host, port, b"", b"\n", timeout_s)
    if not line.startswith(b"INFO "):
        return None
    try:
        return msgspec.json.decode(line.removeprefix(b"INFO "), type=Info)
    except UNDECODABLE:
        return None


async def health_problem(host: str, port: int, password: str, timeout_s: float) -> str | None:
    """Return what the server says is wrong with it (its health, streams on disk included), or None if it is healthy.

    Args:
        password: of the user that may ask.
    """
    hello = msgspec.json.encode({"user": MONITOR, "pass": password, "verbose": False, "lang": "gymq", "version": "1"})
    question = b"CONNECT %b\r\nSUB health 1\r\nPUB $SYS.REQ.SERVER.PING.HEALTHZ health 0\r\n\r\n" % hello
    answer = await _ask(host, port, question, b"}}\r\n", timeout_s)
    _, _, message = answer.partition(b"\r\nMSG ")
    try:
        health = msgspec.json.decode(message.partition(b"\r\n")[2], type=_HealthMessage).data
    except UNDECODABLE:
        return "it does not say how it is"
    return None if health.status == "ok" else health.error or health.status


async def _ask(host: str, port: int, question: bytes, end: bytes, timeout_s: float) -> bytes:
    """Send a question and return the answer up to and including `end`; empty if there is none in time."""
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                writer.write(question)
                return await reader.readuntil(end)
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
    except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return b""
