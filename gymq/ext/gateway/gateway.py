"""Model endpoints for programs that can only be given a base URL and a key.

A program that makes its model calls here makes them for one rollout: with its affinity, its deadline and, asked through
an agent's rollout, its journal. Agents that drive such programs open a gateway in their own process:

    async with Gateway() as gateway, gateway.admit(rollout.id, asks_through(rollout)) as admission:
        environment = {"OPENAI_BASE_URL": admission.openai_url, "OPENAI_API_KEY": admission.api_key}
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Self, cast

from aiohttp import web

from gymq.agent import Rollout
from gymq.ext.http.dialects import Dialect, dialects
from gymq.ext.http.model_calls import CAPTURE, PREFIX, Ask, answer
from gymq.ext.http.previous_responses import PreviousResponses
from gymq.ext.http.requests import check_key, read_body
from gymq.ext.http.server import HttpServer
from gymq.redaction import hidden

MAX_BODY_BYTES = 64 << 20
AT_ONCE = 8  # calls of the program of one rollout; the bodies of more are not read yet


@dataclass
class Admission:
    """A rollout's way to the model.

    Attributes:
        rollout: the id in the path.
        num_calls: model calls that were answered.
        num_failed: model calls that were not.
    """

    rollout: str
    base_url: str
    api_key: str = field(repr=False)
    num_calls: int = 0
    num_failed: int = 0
    in_flight: set[asyncio.Task[Any]] = field(default_factory=set, repr=False)
    previous: PreviousResponses = field(default_factory=PreviousResponses, repr=False)
    room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE), repr=False)

    @property
    def openai_url(self) -> str:
        """The base URL for clients of OpenAI, which put `/responses` or `/chat/completions` behind it."""
        return f"{self.base_url}/v1"

    @property
    def anthropic_url(self) -> str:
        """The base URL for clients of Anthropic, which put `/v1/messages` behind it."""
        return self.base_url

    @property
    def gemini_url(self) -> str:
        """The base URL for clients of Google, which put `/v1beta/models/MODEL:generateContent` behind it."""
        return self.base_url

    @property
    def env(self) -> dict[str, str]:
        """The variables in which clients of OpenAI, Anthropic and Google look for their URL and key."""
        return {
            "OPENAI_BASE_URL": self.openai_url,
            "OPENAI_API_BASE": self.openai_url,
            "OPENAI_API_KEY": self.api_key,
            "ANTHROPIC_BASE_URL": self.anthropic_url,
            "ANTHROPIC_API_KEY": self.api_key,
            "GOOGLE_GEMINI_BASE_URL": self.gemini_url,
            "GEMINI_API_KEY": self.api_key,
        }


class Gateway:
    """An HTTP server on the loopback address, used with `async with`."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        """Prepare a gateway; it does not listen yet, and will at any free port."""
        self._host = host
        self._admitted: dict[str, tuple[Admission, Ask]] = {}
        self._server = HttpServer()

    async def __aenter__(self) -> Self:
        """Start to listen.

        Raises:
            PortTaken: the address cannot be listened on.
        """
        routes = [
            web.post(prefix + dialect.path, self._handler(dialect))
            for dialect in dialects()
            for prefix in (PREFIX, PREFIX + CAPTURE)
        ]
        await self._server.start(routes, self._host, [0])
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.close()

    @asynccontextmanager
    async def admit(self, rollout: str, ask: Ask, *, at_once: int = AT_ONCE) -> AsyncIterator[Admission]:
        """Let a program ask the model for a rollout while the block runs; then its calls are cancelled.

        Args:
            rollout: any name; the id in the URL is made of it.
            ask: makes the model call, see `asks_through`.
            at_once: calls whose bodies are in memory; more where the callers are not programs of a model.
        """
        name = "".join(
            letter if letter.isascii() and (letter.isalnum() or letter in "._-") else "-" for letter in rollout
        )
        rollout_id = f"r{name[:96]}-{secrets.token_hex(4)}"
        key = secrets.token_urlsafe(24)
        base_url = f"http://{self._host}:{self._server.ports[0]}/ng-rollout/{rollout_id}"
        admission = Admission(rollout_id, base_url, key, room=asyncio.Semaphore(at_once))
        self._admitted[rollout_id] = (admission, ask)
        with hidden(key):
            try:
                yield admission
            finally:
                del self._admitted[rollout_id]
                for task in admission.in_flight:
                    task.cancel()

    def _handler(self, dialect: Dialect) -> Any:
        async def handle(request: web.Request) -> web.StreamResponse:
            admission, ask = self._admitted.get(request.match_info["rollout"], (None, None))
            # Without the key, it cannot be learned which rollouts there are.
            check_key(request, admission.api_key if admission else secrets.token_hex())
            assert admission is not None
            assert ask is not None
            task = asyncio.current_task()
            assert task is not None
            admission.in_flight.add(task)  # before the body, whose rest may arrive when the rollout is over
            try:
                async with admission.room:
                    body = await read_body(request, max_bytes=MAX_BODY_BYTES, timeout_s=60.0)
                    reply = await answer(request, dialect, body, ask, admission.previous)
            finally:
                admission.in_flight.discard(task)
            if reply.status == 200:
                admission.num_calls += 1
            else:
                admission.num_failed += 1
            return reply

        return handle


def asks_through(rollout: Rollout) -> Ask:
    """Return a function that asks the model of an agent's rollout.

    It does so in the agent's name, within its time limit, and writes to its journal if it has one. Calls are made one
    after the other: only so does a replay find them in the same order. The caller's `model` does not choose the model;
    the agent's option `model_server` does.
    """
    turn = asyncio.Lock()

    async def ask(params: dict[str, Any]) -> dict[str, Any]:
        async with turn:
            return cast(dict[str, Any], (await rollout.ask(params)).response)

    return ask
