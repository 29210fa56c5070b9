"""A resources server in the manner of NeMo Gym, to try http_resources with: a counter in a session that is a cookie.

python -m gymq.workers.resources.http_resources.example_server --port 8000
"""

from __future__ import annotations

import argparse
import hashlib
import hmac
import itertools
import secrets
from typing import Any

from aiohttp import web

COOKIE = "session"


class CounterServer:
    """Counts for each session. Like NeMo Gym's servers it signs its cookie again with each answer."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.calls: list[tuple[str, str]] = []  # session and path of every request
        self._secret = secrets.token_bytes(16)
        self._serial = itertools.count()

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_post("/seed_session", self._in_session(self.seed))
        app.router.add_post("/increment_counter", self._in_session(self.increment))
        app.router.add_post("/get_counter_value", self._in_session(self.value))
        app.router.add_post("/verify", self._in_session(self.verify))
        return app

    async def seed(self, session: str, body: dict[str, Any]) -> dict[str, Any]:
        self.counts[session] = _integer(body, "initial_count")
        return {}

    async def increment(self, session: str, body: dict[str, Any]) -> dict[str, Any]:
        self.counts[session] = self.counts.get(session, 0) + _integer(body, "count")
        return {"success": True}

    async def value(self, session: str, _body: dict[str, Any]) -> dict[str, Any]:
        return {"count": self.counts.get(session, 0)}

    async def verify(self, session: str, body: dict[str, Any]) -> dict[str, Any]:
        count = self.counts.get(session, 0)
        return {**body, "reward": float(count == _integer(body, "expected_count")), "final_count": count}

    def _in_session(self, handle: Any) -> Any:
        async def handler(request: web.Request) -> web.Response:
            session = self._session(request.cookies.get(COOKIE, ""))
            self.calls.append((session, request.path))
            answer = web.json_response(await handle(session, await request.json()))
            answer.set_cookie(COOKIE, self._signed(session), httponly=True, samesite="lax")
            return answer

        return handler

    def _signed(self, session: str) -> str:
        text = f"{session}.{next(self._serial)}"
        return f"{text}.{self._signature(text)}"

    def _session(self, cookie: str) -> str:
        """Return the session of a cookie, a new one if the cookie is unknown."""
        text, _, signature = cookie.rpartition(".")
        if hmac.compare_digest(signature, self._signature(text)):
            return text.partition(".")[0]
        return secrets.token_hex(8)

    def _signature(self, text: str) -> str:
        return hmac.new(self._secret, text.encode(), hashlib.sha256).hexdigest()


def _integer(body: dict[str, Any], name: str) -> int:
    value = body.get(name)
    if not isinstance(value, int):
        text = f'{{"detail": "{name}: expected an integer"}}'
        raise web.HTTPUnprocessableEntity(text=text, content_type="application/json")
    return value


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8000)
    web.run_app(CounterServer().app(), host="127.0.0.1", port=parser.parse_args().port)
