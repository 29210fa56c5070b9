"""Replicas of a model number themselves, so that they can divide what they have only once."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gymq.bus import Bus
from gymq.bus.rpc import replicas
from gymq.bus.rpc.replicas import Replicas
from gymq.bus.rpc.serving import Server
from gymq.execution.model_runner import ModelRunner
from gymq.model import Model, ModelRequest
from gymq.protocol import subjects
from gymq.protocol.codec import encode
from gymq.protocol.replica_messages import Load
from tests.conftest import Connect
from tests.support.waiting import until, until_answer


class Sharing(Model):
    """Remembers its parts."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name)
        self.parts: list[tuple[int, int]] = []

    def share(self, index: int, of: int) -> None:
        self.parts.append((index, of))

    async def respond(self, request: ModelRequest) -> dict[str, Any]:
        raise NotImplementedError

    async def has(self, part: tuple[int, int]) -> None:
        await until(lambda: self.parts[-1] == part)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas, "LISTEN_S", 0.0)


Start = Callable[[str], Awaitable[Sharing]]


@pytest.fixture
def start(shared_url: str, connect: Connect, run: str) -> Start:
    """Starts the part of a replica that listens."""

    async def started(worker: str) -> Sharing:
        connected = await connect(shared_url)
        model = Sharing(run)
        await Replicas(connected, run, worker, model.share).start()
        await connected.flush()
        return model

    return started


async def tell(bus: Bus, run: str, *workers: str) -> None:
    for worker in workers:
        await bus.publish(subjects.LOAD.of(run), encode(Load(worker=worker, running=0, waiting=0)))
    await bus.flush()


async def test_all_come_to_the_same_numbers(bus: Bus, run: str, start: Start) -> None:
    models = {worker: await start(worker) for worker in ("b", "a", "c")}
    await tell(bus, run, "a", "b", "c", "a", "b", "c")
    for index, worker in enumerate("abc"):
        await models[worker].has((index, 3))


async def test_nothing_is_its_own_until_it_has_heard_itself(bus: Bus, run: str, start: Start) -> None:
    model = await start("a")
    assert model.parts == [(0, 0)]
    await tell(bus, run, "b")
    await asyncio.sleep(0.05)
    assert model.parts == [(0, 0)]
    await tell(bus, run, "a")
    await model.has((0, 2))


async def test_it_listens_for_a_while_before_it_takes_anything(
    bus: Bus, run: str, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "LISTEN_S", 1e6)
    model = await start("a")
    await tell(bus, run, "a", "a")
    await asyncio.sleep(0.05)
    assert model.parts == [(0, 0)]


async def test_the_part_of_one_that_is_gone_is_divided_again(
    bus: Bus, run: str, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = await start("b")
    await tell(bus, run, "a", "b")
    await model.has((1, 2))
    monkeypatch.setattr(replicas, "EXPIRES_S", 0.0)
    await until_answer(lambda: tell(bus, run, "b"), lambda _: model.parts[-1] == (0, 1))


async def test_one_that_is_cut_off_keeps_its_part(
    bus: Bus, run: str, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = await start("a")
    await tell(bus, run, "b", "a")
    await model.has((0, 2))
    monkeypatch.setattr(replicas, "EXPIRES_S", 0.0)
    await tell(bus, run, "b")
    await asyncio.sleep(0.05)
    assert model.parts[-1] == (0, 2)


async def test_what_is_no_load_is_passed_over(bus: Bus, run: str, start: Start) -> None:
    model = await start("a")
    await bus.publish(subjects.LOAD.of(run), b"nonsense")
    await tell(bus, run, "a")
    await model.has((0, 1))


async def test_replicas_that_serve_divide_and_one_that_stops_gives_its_part_back(
    shared_url: str, connect: Connect, run: str
) -> None:
    models = [Sharing(run), Sharing(run)]
    runners = [ModelRunner(model) for model in models]
    for worker, runner in zip(("one", "two"), runners, strict=True):
        server = Server(await connect(shared_url), worker)
        await server.start()
        await runner.serve(server)
    await asyncio.gather(models[0].has((0, 2)), models[1].has((1, 2)))
    await runners[0].stop()
    await models[1].has((0, 1))
    await runners[1].stop()
