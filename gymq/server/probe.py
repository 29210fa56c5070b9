"""Questions to a server that need neither a client library nor the password."""

import asyncio
import contextlib

import msgspec


class Info(msgspec.Struct):
    """The fields of the INFO line that we look at. A server sends it to everybody who connects."""

    server_name: str
    version: str
    jetstream: bool = False


class _Health(msgspec.Struct):
    status: str
    error: str = ""


async def read_info(host: str, port: int, timeout_s: float) -> Info | None:
    """What the server on this port says of itself, or None if no NATS server answers in time."""
    line = await _ask(host, port, b"", b"\n", timeout_s)
    if not line.startswith(b"INFO "):
        return None
    try:
        return msgspec.json.decode(line.removeprefix(b"INFO "), type=Info)
    except msgspec.DecodeError:
        return None


async def health_problem(host: str, monitor_port: int, timeout_s: float) -> str | None:
    """What the server says is wrong with it (its /healthz, streams on disk included), or None if it is healthy."""
    answer = await _ask(host, monitor_port, b"GET /healthz HTTP/1.0\r\n\r\n", b"}", timeout_s)
    _, _, body = answer.partition(b"\r\n\r\n")
    try:
        health = msgspec.json.decode(body, type=_Health)
    except msgspec.DecodeError:
        return "its monitoring port gives no answer"
    return None if health.status == "ok" else health.error or health.status


async def _ask(host: str, port: int, question: bytes, end: bytes, timeout_s: float) -> bytes:
    """The answer up to and with `end`; empty if there is none in time."""
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
