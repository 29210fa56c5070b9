"""A server that speaks OpenEnv's protocol, for trying the worker without that package: a number to guess.

`python example_server.py --port 8000` runs it. Its environment is reset with `{"number": 42}`.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from aiohttp import WSMsgType, web

MAX_GUESSES = 10


class Guessing:
    """The environment of one connection."""

    def __init__(self) -> None:
        self.number, self.left = 0, 0

    def answer(self, message: dict[str, Any]) -> dict[str, Any]:
        data = message["data"]
        if message["type"] == "reset":
            self.number, self.left = int(data.get("number", 42)), MAX_GUESSES
            return _observation("Guess a number from 1 to 100.", None, False)
        text = str(data.get("message", "")).strip()
        if not text.isdecimal() or len(text) > 3:
            return {"type": "error", "data": {"code": "VALIDATION_ERROR", "message": "message: must be a number"}}
        self.left -= 1
        guess = int(text)
        hint = "Right." if guess == self.number else "It is higher." if guess < self.number else "It is lower."
        return _observation(hint, float(guess == self.number), guess == self.number or self.left == 0)


def _observation(text: str, reward: float | None, done: bool) -> dict[str, Any]:
    return {"type": "observation", "data": {"observation": {"text": text}, "reward": reward, "done": done}}


async def _serve(request: web.Request) -> web.WebSocketResponse:
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    environment = Guessing()
    async for received in socket:
        if received.type is not WSMsgType.TEXT:
            break
        message = json.loads(received.data)
        if message["type"] == "close":
            break
        await socket.send_json(environment.answer(message))
    return socket


def app() -> web.Application:
    """Return the server as an application of aiohttp."""
    application = web.Application()
    application.router.add_get("/ws", _serve)
    return application


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=8000)
    web.run_app(app(), host="127.0.0.1", port=parser.parse_args().port)
