"""Sessions find in their replica's cache all that they would find if it were alone."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from gymq.workers.models.simulated_model.worker import SimulatedModel

from gymq.bus import Bus
from gymq.bus.rpc.calls import Calls
from gymq.bus.rpc.routing import RoutedCalls, Routes
from gymq.bus.rpc.serving import Server
from gymq.execution.model_runner import ModelRunner
from gymq.protocol import subjects
from gymq.protocol.messages import Generate, Generated
from tests.support.waiting import DEADLINE_S, until

TURNS = 5
SESSIONS = 12


class Replicas:
    def __init__(self, url: str, bus: Bus, name: str) -> None:
        self.url = url
        self.bus = bus
        self.name = name
        self.routes = Routes(bus)
        self.buses: list[Bus] = []
        self.runners: list[ModelRunner] = []

    async def start(self, count: int) -> None:
        await self.routes.start()
        await self.bus.flush()
        for number in range(count):
            worker = f"{self.name}-{number}"
            bus = await Bus.connect(self.url, role="test", name=worker)
            server = Server(bus, worker)
            await server.start()
            model = SimulatedModel({"token_ids": True, "output_tokens": 60, "cache_blocks": 100_000}, name=self.name)
            await model.start()
            runner = ModelRunner(model)
            await runner.serve(server)
            self.buses.append(bus)
            self.runners.append(runner)
        await until(lambda: len(self.routes._models.get(self.name, {})) == count)

    async def stop(self) -> None:
        for runner, bus in zip(self.runners, self.buses, strict=True):
            await runner.stop()
            await bus.close()

    async def session(self, calls: Any, session: str) -> int:
        """Cached tokens of all turns."""
        items: list[dict[str, Any]] = [{"role": "user", "content": f"Session {session}: tell me more. " * 20}]
        cached = 0
        for _ in range(TURNS):
            request = Generate(rollout="r/0/0", timeout_s=60.0, params={"input": list(items)}, session=session)
            generated = await calls.call(subjects.MODEL.of(self.name), request)
            assert isinstance(generated, Generated)
            cached += generated.response["usage"]["input_tokens_details"]["cached_tokens"]
            items += [*generated.response["output"], {"role": "user", "content": "And then?"}]
        return cached

    async def sessions(self, calls: Any) -> int:
        async with asyncio.timeout(DEADLINE_S):
            return sum(await asyncio.gather(*(self.session(calls, f"s{number}") for number in range(SESSIONS))))


@pytest.fixture
async def alone(shared_url: str, bus: Bus, run: str) -> AsyncIterator[Replicas]:
    made = Replicas(shared_url, bus, f"{run}-alone")
    await made.start(1)
    yield made
    await made.stop()


@pytest.fixture
async def two(shared_url: str, bus: Bus, run: str) -> AsyncIterator[Replicas]:
    made = Replicas(shared_url, bus, f"{run}-two")
    await made.start(2)
    yield made
    await made.stop()


async def test_two_replicas_hit_their_caches_as_often_as_one_alone(bus: Bus, alone: Replicas, two: Replicas) -> None:
    best = await alone.sessions(Calls(bus))
    assert best > 0
    assert await two.sessions(RoutedCalls(Calls(bus), two.routes)) == best


async def test_without_affinity_they_hit_less(bus: Bus, alone: Replicas, two: Replicas) -> None:
    assert await two.sessions(Calls(bus)) < 0.9 * await alone.sessions(Calls(bus))
