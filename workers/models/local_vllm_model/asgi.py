"""Calls a web application in this process, without a socket."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from gymq.protocol.tokens import to_json


async def post(app: Any, path: str, body: Mapping[str, Any]) -> tuple[int, bytes]:
    """Status and body of the answer to a POST request.

    Cancelling it notifies the application that the client is gone, and waits until it has stopped.
    """
    raw = to_json(body)
    unread = True
    gone = asyncio.Event()
    status = 500
    answer = bytearray()

    async def receive() -> dict[str, Any]:
        nonlocal unread
        if unread:
            unread = False
            return {"type": "http.request", "body": raw, "more_body": False}
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        else:
            answer.extend(message.get("body", b""))

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [(b"host", b"engine"), (b"content-type", b"application/json")],
        "server": ("engine", 80),
        "client": ("worker", 1),
    }
    task = asyncio.ensure_future(app(scope, receive, send))
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        # A handler stops its request when the client disconnects; merely cancelled it would leave it to the engine.
        gone.set()
        await asyncio.gather(task, return_exceptions=True)
        raise
    return status, bytes(answer)
