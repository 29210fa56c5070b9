"""A small HTTP/1.1 server that answers by a script and remembers what it was asked. Connections are kept alive."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

import gymq

ModelT = TypeVar("ModelT", bound=gymq.Model)


@dataclass
class Asked:
    """One request that arrived."""

    target: str
    headers: dict[str, str]  # names in lower case
    body: dict[str, Any]


@dataclass
class Answer:
    """One answer. With `promised` more bytes are announced than sent, and the connection is closed."""

    body: bytes = b""
    status: str = "200 OK"
    headers: dict[str, str] = field(default_factory=dict)
    promised: int = 0

    def encoded(self) -> bytes:
        headers = {"Content-Type": "application/json", **self.headers}
        headers["Content-Length"] = str(len(self.body) + self.promised)
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"HTTP/1.1 {self.status}\r\n{lines}\r\n".encode() + self.body


def as_json(value: Any, status: str = "200 OK", **headers: str) -> Answer:
    """An answer with JSON; `Retry_After="1"` becomes the header `Retry-After`."""
    renamed = {name.replace("_", "-"): text for name, text in headers.items()}
    return Answer(json.dumps(value).encode(), status, renamed)


def error(status: str, message: str, code: str | None = None, **headers: str) -> Answer:
    """An error in OpenAI's form."""
    body = {"error": {"message": message, "type": "some_error", "param": None, "code": code}}
    return as_json(body, status, **headers)


class MockServer:
    """Gives `answers` in order, the last one again and again; or asks `reply` for each answer.

    `aside` answers what the script is not about, by None for other requests; those are not in `asked`. Nor are those
    for `metrics`, the text at `metrics_path`, for `is_paused`, and for the version of its weights, which it lacks.
    """

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.reply: Callable[[Asked], Awaitable[Answer]] = self._next
        self.aside: Callable[[dict[str, Any]], dict[str, Any] | None] = lambda body: None
        self.metrics = ""
        self.metrics_path = "/metrics"
        self.is_paused: bool | None = None  # None: it does not say it
        self.asked: list[Asked] = []
        self.in_flight = 0
        self.most_in_flight = 0
        self.hung_up = asyncio.Event()  # a client left before it had its answer
        self._arrival = asyncio.Condition()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=1024)
        self.port: int = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/v1"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def busy_with(self, num_requests: int) -> None:
        """Wait until so many requests have come and not been answered."""
        async with asyncio.timeout(300), self._arrival:
            await self._arrival.wait_for(lambda: self.in_flight >= num_requests)

    async def _next(self, _asked: Asked) -> Answer:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                asked = await _read(reader)
                if asked.target.endswith("/metrics"):
                    has_metrics = self.metrics and asked.target == self.metrics_path
                    answer = Answer(self.metrics.encode()) if has_metrics else Answer(status="404 Not Found")
                    writer.write(answer.encoded())
                    continue
                if asked.target == "/is_paused" and self.is_paused is not None:
                    writer.write(as_json({"is_paused": self.is_paused}).encoded())
                    continue
                if asked.target.endswith(("/is_paused", "/model_info", "/get_model_info", "/weight_info")):
                    writer.write(Answer(status="404 Not Found").encoded())
                    continue
                if (reply := self.aside(asked.body)) is not None:
                    writer.write(as_json(reply).encoded())
                    continue
                self.asked.append(asked)
                told = await self._answer(asked, reader)
                if told is None:
                    self.hung_up.set()
                    return
                writer.write(told.encoded())
                await writer.drain()
                if told.promised:
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    async def _answer(self, asked: Asked, reader: asyncio.StreamReader) -> Answer | None:
        """The answer; None if the client leaves before it is ready."""
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        async with self._arrival:
            self._arrival.notify_all()
        answering = asyncio.ensure_future(self.reply(asked))
        leaving = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
            return answering.result() if answering.done() else None
        finally:
            self.in_flight -= 1
            answering.cancel()
            leaving.cancel()
            await asyncio.gather(answering, leaving, return_exceptions=True)


async def _read(reader: asyncio.StreamReader) -> Asked:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    request_line, *lines = head.rstrip().split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Asked(request_line.split(" ")[1], headers, json.loads(body or b"{}"))


@asynccontextmanager
async def starting(
    model: type[ModelT], name: str = "policy_model", /, **defaults: Any
) -> AsyncIterator[Callable[..., Awaitable[ModelT]]]:
    """Starts workers with some options, and stops them."""
    async with AsyncExitStack() as stack:

        async def started(**options: Any) -> ModelT:
            worker = model({**defaults, **options}, name=name)
            await worker.start()
            stack.push_async_callback(worker.stop)
            return worker

        yield started
