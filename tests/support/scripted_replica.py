"""A service to call in tests: its calls say what it shall do, and it notes what became of them."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gymq.authoring import current_call
from gymq.bus import Bus
from gymq.bus.rpc.calls import Calls
from gymq.bus.rpc.serving import Server, Service
from gymq.failures import RETRIES
from gymq.protocol import subjects
from gymq.protocol.codec import Decoder, encode
from gymq.protocol.messages import Accepted, BlobRef, FailureClass, Generate, Generated, Message
from tests.support.waiting import DEADLINE_S

decode = Decoder(Generate, BlobRef)


def ask(rollout: str = "x", *, timeout_s: float = 60.0, **params: Any) -> Generate:
    return Generate(rollout=rollout, timeout_s=timeout_s, params=params, session="s")


class ScriptedReplica:
    """One replica of a service."""

    def __init__(self, bus: Bus, worker: str) -> None:
        self.bus = bus
        self.worker = worker
        self.started: list[str] = []
        self.cancelled: list[str] = []
        self.finished: list[str] = []
        self.time_left: list[float] = []
        self.go = asyncio.Event()  # calls with `wait` go on
        self.action: Callable[[], Any] = lambda: None  # what calls with `action` do
        self.server = Server(bus, worker)
        self.service: Service

    async def serve(self, subject: str, *, group: str = "g", limit: int = 100) -> None:
        await self.server.start()
        self.service = await self.server.serve("test", subject, decode, self.answer, group=group, limit=limit)
        await self.bus.flush()

    async def answer(self, _subject: str, request: Generate) -> Message:
        self.started.append(request.rollout)
        self.time_left.append(current_call.get().deadline - asyncio.get_running_loop().time())
        try:
            if request.params.get("wait"):
                await self.go.wait()
            await asyncio.sleep(request.params.get("sleep_s", 0.0))
            if request.params.get("action"):
                made = self.action()
                return await made if asyncio.iscoroutine(made) else made
        except asyncio.CancelledError:
            self.cancelled.append(request.rollout)
            raise
        self.finished.append(request.rollout)
        size = request.params.get("size", 0)
        return Generated(response={"worker": self.worker, "noise": noise(size), "got": len(encode(request))})


def limit_patience(monkeypatch: pytest.MonkeyPatch, budget_s: float) -> None:
    """Calls wait no longer than this for somebody to serve their subject."""
    known = RETRIES[FailureClass.NO_WORKER]
    assert known.call is not None
    limited = replace(known, call=replace(known.call, budget_s=budget_s))
    monkeypatch.setitem(RETRIES, FailureClass.NO_WORKER, limited)


def noise(size: int) -> bytes:
    """Bytes that do not compress, the same for the same size."""
    return random.Random(size).randbytes(size)


async def frames(bus: Bus, subject: str, request: bytes, count: int) -> list[Any]:
    """The first messages that come in reply to a request, whatever they are."""
    async with asyncio.timeout(DEADLINE_S):
        got = await _replies(bus, subject, request)
        return [(await got.get()).data for _ in range(count)]


async def last_frame(bus: Bus, subject: str, request: bytes) -> Any:
    """The answer to a request, which a busy machine accepts first."""
    async with asyncio.timeout(DEADLINE_S):
        got = await _replies(bus, subject, request)
        while str(Accepted.__struct_config__.tag).encode() in (data := (await got.get()).data):
            pass
        return data


async def _replies(bus: Bus, subject: str, request: bytes) -> asyncio.Queue[Any]:
    got: asyncio.Queue[Any] = asyncio.Queue()
    reply = bus.expect(got.put_nowait, subjects.ANY_ROLE)
    await bus.publish(subject, request, reply=reply)
    return got


async def call(calls: Calls, subject: str, request: Generate) -> dict[str, Any]:
    """The response, or the error, within half a minute."""
    async with asyncio.timeout(DEADLINE_S):
        generated = await calls.call(subject, request)
    assert isinstance(generated, Generated)
    return generated.response
