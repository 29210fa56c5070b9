"""Serve a scripted OpenAI endpoint that knows some capitals: `python endpoint.py PORT`.

The first part of the path selects its behaviour: /good, /key (401 without the key `right`), /models (404 for every
model but `good`), /chat (no Responses dialect), /limited (429 for ever), /slow (a second a reply).
"""

from __future__ import annotations

import asyncio
import hashlib
import sys
import time
from typing import Any

from aiohttp import web

CAPITALS = {"Switzerland": "Bern", "Peru": "Lima", "Kenya": "Nairobi", "Japan": "Tokyo"}


def error(status: int, message: str, headers: dict[str, str] | None = None) -> web.Response:
    return web.json_response({"error": {"message": message, "code": status}}, status=status, headers=headers)


async def refuse_or_wait(request: web.Request, body: dict[str, Any]) -> web.Response | None:
    """Return the refusal that the behaviour in the path asks for, if any."""
    behaviour = request.match_info["behaviour"]
    if behaviour == "key" and request.headers.get("Authorization") != "Bearer right":
        return error(401, "Incorrect API key provided")
    if behaviour == "models" and body.get("model") != "good":
        return error(404, f"The model `{body.get('model')}` does not exist")
    if behaviour == "limited":
        return error(429, "Rate limit reached", {"Retry-After": "2"})
    if behaviour == "slow":
        await asyncio.sleep(1)
    return None


def reply_to(body: dict[str, Any]) -> str:
    """Answer a question about a capital; a quarter of the answers is wrong, the same ones each time."""
    text = str(body.get("input") or body.get("messages"))
    if "[[SAME]]" in text:  # it is asked as a judge
        return "The answers agree: [[SAME]]"
    found = next((city for country, city in CAPITALS.items() if country in text), "I do not know")
    seed = hashlib.sha256(f"{text}{time.monotonic_ns()}".encode()).digest()[0]
    return "Paris, I think." if seed < 64 else f"The capital is {found}."


async def responses(request: web.Request) -> web.Response:
    body = await request.json()
    if request.match_info["behaviour"] == "chat":
        return error(404, "Not Found")
    if (refused := await refuse_or_wait(request, body)) is not None:
        return refused
    text = {"type": "output_text", "text": reply_to(body), "annotations": []}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [text]}
    usage = {
        "input_tokens": 24,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 9,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 33,
    }
    reply = {
        "id": "resp_1",
        "object": "response",
        "created_at": int(time.time()),
        "status": "completed",
        "model": body["model"],
        "output": [message],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": usage,
    }
    return web.json_response(reply)


async def chat(request: web.Request) -> web.Response:
    body = await request.json()
    if (refused := await refuse_or_wait(request, body)) is not None:
        return refused
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": reply_to(body)}}
    usage = {"prompt_tokens": 24, "completion_tokens": 9, "total_tokens": 33}
    reply = {
        "id": "chat_1",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": body["model"],
        "choices": [choice],
        "usage": usage,
    }
    return web.json_response(reply)


async def models(_request: web.Request) -> web.Response:
    return web.json_response({"object": "list", "data": [{"id": "good", "object": "model"}]})


def main() -> None:
    app = web.Application()
    app.router.add_post("/{behaviour}/v1/responses", responses)
    app.router.add_post("/{behaviour}/v1/chat/completions", chat)
    app.router.add_get("/{behaviour}/v1/models", models)
    web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), print=None)


if __name__ == "__main__":
    main()
