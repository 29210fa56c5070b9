"""An HTTP endpoint that goes wrong in the way the prompt asks for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web

GOOD = {
    "id": "resp_1",
    "object": "response",
    "created_at": 0,
    "model": "m",
    "status": "completed",
    "output": [
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "fine", "annotations": []}],
        }
    ],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}


def _says(status: int, body: str, content_type: str = "application/json") -> Callable[[web.Request], Awaitable[object]]:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=status, text=body, content_type=content_type)

    return answer


async def _hangs(request: web.Request) -> object:
    await asyncio.sleep(3600)
    raise AssertionError("nobody waits so long")


async def _breaks_off(request: web.Request) -> object:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def _half_sent(request: web.Request) -> object:
    body = json.dumps(GOOD).encode()
    response = web.StreamResponse(headers={"Content-Length": str(len(body)), "Content-Type": "application/json"})
    await response.prepare(request)
    await response.write(body[: len(body) // 2])
    assert request.transport is not None
    request.transport.abort()
    return response


ANSWERS = {
    "fine": _says(200, json.dumps(GOOD)),
    "hangs": _hangs,
    "breaks off": _breaks_off,
    "half sent": _half_sent,
    "500": _says(500, '{"error": {"message": "internal"}}'),
    "503": _says(503, "<html>busy</html>", "text/html"),
    "401": _says(401, '{"error": {"message": "no such key"}}'),
    "redirect": _says(302, ""),
    "nothing": _says(200, ""),
    "half an object": _says(200, json.dumps(GOOD)[:100]),
    "html": _says(200, "<html>log in first</html>", "text/html"),
    "list": _says(200, json.dumps([GOOD])),
    "null": _says(200, "null"),
    "NaN": _says(200, "NaN"),
    "no output": _says(200, json.dumps({**GOOD, "output": None})),
    "failed": _says(200, json.dumps({**GOOD, "status": "failed", "output": []})),
    "error": _says(200, json.dumps({"error": {"message": "engine died"}})),
}


@asynccontextmanager
async def endpoint() -> AsyncIterator[str]:
    """Serves `/responses`; the base URL."""

    async def respond(request: web.Request) -> object:
        asked = await request.json()
        fault = json.loads(asked["metadata"]["script"]).get("model_fault", "fine")
        return await ANSWERS[fault](request)

    app = web.Application()
    app.router.add_post("/responses", respond)  # type: ignore[arg-type]
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
