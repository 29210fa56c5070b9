"""A worker process stops the workers that it started, however it ends."""

import asyncio
import socket
from typing import Any

import pytest

import gymq
from gymq.cluster import worker_process
from gymq.cluster.process_spec import ProcessSpec
from gymq.cluster.worker_process import InstanceHost
from gymq.protocol.instances import Instance
from tests.support.waiting import DEADLINE_S, until


class Noted(gymq.Resources[gymq.Row]):
    """Notes when it is started and stopped, and does in the meantime what a test wants."""

    events: list[str]

    async def start(self) -> None:
        if self.name.startswith("broken"):
            raise RuntimeError("it is broken")
        if self.name.startswith("slow"):
            self.events.append(f"{self.name} starts")
            await asyncio.Event().wait()
        self.events.append(f"{self.name} started")

    async def stop(self) -> None:
        self.events.append(f"{self.name} stopped")
        if self.name.startswith("clumsy"):
            raise RuntimeError("it cannot stop")

    async def verify(self, request: Any) -> float:
        return 1.0


class Process:
    """A worker process that runs in this one."""

    def __init__(self, url: str, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
        self.events: list[str] = []
        made = {name: Noted(name=name) for name in names}
        for worker in made.values():
            worker.events = self.events
        spec = ProcessSpec(url, "resources", [Instance(name, "resources", "noted", {}) for name in names], drain_s=1.0)
        self.host = InstanceHost(spec, made)
        monkeypatch.setattr(worker_process, "InstanceHost", lambda _, suspects: self.host)
        self.parent, self._theirs = socket.socketpair()
        self.parent.setblocking(False)
        self.ended = asyncio.create_task(worker_process.run(spec, self._theirs))

    async def answer(self) -> str:
        return (await asyncio.get_running_loop().sock_recv(self.parent, 4096)).decode()

    async def status(self) -> int:
        with self.parent, self._theirs:
            return await asyncio.wait_for(self.ended, DEADLINE_S)


async def test_a_worker_that_cannot_start_leaves_no_other_running(
    shared_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = Process(shared_url, monkeypatch, "first", "broken")
    assert "broken cannot start: RuntimeError: it is broken" in await process.answer()
    assert await process.status() == 2
    assert process.events == ["first started", "first stopped"]


async def test_asked_to_end_while_it_starts_it_stops_what_it_has_started(
    shared_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = Process(shared_url, monkeypatch, "first", "slow")
    await until(lambda: "slow starts" in process.events)
    process.parent.close()
    assert await process.status() == 0
    assert process.events == ["first started", "slow starts", "first stopped"]


async def test_a_connection_that_is_lost_for_good_leaves_no_worker_running(
    shared_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = Process(shared_url, monkeypatch, "first")
    assert "ready" in await process.answer()
    assert process.host._bus is not None
    await process.host._bus._nc.close()
    assert await process.status() == 1
    assert process.events == ["first started", "first stopped"]


async def test_a_worker_that_cannot_stop_keeps_no_other_from_it(
    shared_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = Process(shared_url, monkeypatch, "clumsy", "second")
    assert "ready" in await process.answer()
    process.parent.close()
    assert await process.status() == 0
    assert process.events == ["clumsy started", "second started", "clumsy stopped", "second stopped"]
    assert process.host._bus is not None
    assert process.host._bus.lost.is_set()


async def test_sessions_and_calls_together_have_the_time_to_drain(
    shared_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process is killed ten seconds after that time, and its workers would not be stopped."""
    process = Process(shared_url, monkeypatch, "first")
    assert "ready" in await process.answer()
    left: list[float] = []

    async def calls(deadline_s: float) -> None:
        left.append(deadline_s)

    assert process.host._server is not None
    monkeypatch.setattr(process.host._resources[0], "drain", asyncio.sleep)  # a session that stays open
    monkeypatch.setattr(process.host._server, "drain", calls)
    process.parent.close()
    assert await process.status() == 0
    assert len(left) == 1
    assert left[0] < 0.1
