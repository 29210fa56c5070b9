"""Calls to a model go to the replica that suits them, and to anybody else when that one cannot."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import gymq
from gymq.bus import Bus
from gymq.bus.rpc.admission import FEWEST_IN_FLIGHT
from gymq.bus.rpc.calls import Calls
from gymq.bus.rpc.routing import RoutedCalls, Routes
from gymq.bus.rpc.serving import Server
from gymq.execution import model_runner
from gymq.execution.model_runner import ModelRunner
from gymq.model import ModelLoad, ModelRequest
from gymq.protocol import subjects
from gymq.protocol.codec import encode
from gymq.protocol.messages import Generate, Generated
from gymq.protocol.replica_messages import Load
from gymq.testing import reply
from tests.support.waiting import DEADLINE_S, until


class Replica(gymq.Model):
    """Notes which sessions it answered; its load is what the test says."""

    def __init__(self, name: str, worker: str) -> None:
        super().__init__(name=name)
        self.worker = worker
        self.reported: ModelLoad | None = ModelLoad(0, 0)
        self.sessions: list[str] = []
        self.go = asyncio.Event()
        self.go.set()

    async def respond(self, request: ModelRequest) -> dict[str, Any]:
        self.sessions.append(request.session)
        await self.go.wait()
        return reply(self.worker)

    def load(self) -> ModelLoad | None:
        return self.reported


class Cluster:
    """Replicas of one model, each on its connection, and an agent's way to them."""

    def __init__(self, url: str, name: str, bus: Bus) -> None:
        self.url = url
        self.name = name
        self.routes = Routes(bus)
        self.calls = RoutedCalls(Calls(bus), self.routes)
        self.replicas: dict[str, Replica] = {}
        self.servers: dict[str, Server] = {}
        self.runners: dict[str, ModelRunner] = {}
        self.buses: dict[str, Bus] = {}

    async def add(self, *workers: str) -> None:
        for worker in workers:
            bus = self.buses[worker] = await Bus.connect(self.url, role="test", name=worker)
            server = self.servers[worker] = Server(bus, worker)
            await server.start()
            replica = self.replicas[worker] = Replica(self.name, worker)
            runner = self.runners[worker] = ModelRunner(replica)
            await runner.serve(server)
            await bus.flush()

    async def reported(self, *workers: str, **load: float) -> None:
        """Wait until the agent has heard this load of these replicas."""
        for worker in workers:
            if load:
                self.replicas[worker].reported = ModelLoad(**load)  # type: ignore[arg-type]
        await asyncio.gather(*(self._heard(worker) for worker in workers))

    async def _heard(self, worker: str) -> None:
        heard: asyncio.Queue[Any] = asyncio.Queue()

        async def on_load(message: Any) -> None:
            wanted = self.runners[worker]._load()
            if message.data == encode(wanted):
                heard.put_nowait(message)

        bus = self.buses[worker]
        subscription = await bus.subscribe(subjects.LOAD.of(self.name), on_load)
        async with asyncio.timeout(DEADLINE_S):
            await heard.get()
        await bus.unsubscribe(subscription)
        await until(lambda: worker in self.routes._models.get(self.name, {}))

    async def ask(self, session: str) -> str:
        """Who answered."""
        request = Generate(rollout="r/0/0", timeout_s=30.0, params={"input": []}, session=session)
        async with asyncio.timeout(DEADLINE_S):
            generated = await self.calls.call(subjects.MODEL.of(self.name), request)
        assert isinstance(generated, Generated)
        return generated.worker

    async def close(self, worker: str) -> None:
        await self.runners[worker].stop()
        await self.servers[worker].drain(0.0)
        await self.buses[worker].close()


@pytest.fixture(autouse=True)
def quick_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replicas tell their load more often than they would, so no test waits for the next time."""
    monkeypatch.setattr(model_runner, "LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(model_runner, "PUBLISH_EVERY_S", 0.05)


@asynccontextmanager
async def cluster_of(url: str, name: str, bus: Bus, *workers: str) -> AsyncIterator[Cluster]:
    cluster = Cluster(url, name, bus)
    await cluster.routes.start()
    await bus.flush()
    await cluster.add(*workers)
    yield cluster
    for worker in cluster.buses:
        await cluster.close(worker)


@pytest.fixture
async def two(shared_url: str, bus: Bus, run: str) -> AsyncIterator[Cluster]:
    async with cluster_of(shared_url, run, bus, "a", "b") as cluster:
        await cluster.reported("a", "b")
        yield cluster


async def test_the_calls_of_a_session_reach_one_replica(two: Cluster) -> None:
    for session in map(str, range(20)):
        assert len({await two.ask(session) for _ in range(5)}) == 1


async def test_sessions_are_spread_over_the_replicas(two: Cluster) -> None:
    answered = Counter([await two.ask(str(session)) for session in range(40)])
    assert min(answered["a"], answered["b"]) >= 10


async def test_a_new_session_goes_to_the_replica_with_less_to_do(two: Cluster) -> None:
    await two.reported("a", running=500, waiting=0)
    assert {await two.ask(f"new {number}") for number in range(20)} == {"b"}


async def test_a_busy_replica_keeps_its_sessions_until_it_is_full(two: Cluster) -> None:
    holder = await two.ask("s")
    other = "b" if holder == "a" else "a"
    await two.reported(holder, running=500, waiting=3, kv_cache_use=0.5)
    assert await two.ask("s") == holder
    await two.reported(holder, running=500, waiting=3, kv_cache_use=0.99)
    assert await two.ask("s") == other


async def test_the_rollouts_of_an_agent_are_bounded_while_calls_wait(two: Cluster) -> None:
    budget = two.routes.admission[two.name]
    assert budget.most_in_flight is None
    await two.reported("a", running=500, waiting=3)
    await two.reported("b", running=100, waiting=0)
    await until(lambda: budget.most_in_flight == 1200)
    await two.reported("a", running=0, waiting=3)
    await two.reported("b", running=1, waiting=0)
    await until(lambda: budget.most_in_flight == FEWEST_IN_FLIGHT)
    await two.reported("a", running=500, waiting=0)
    await until(lambda: budget.most_in_flight is None)


async def test_when_all_replicas_are_full_a_session_stays_where_it_is(two: Cluster) -> None:
    holder = await two.ask("s")
    await two.reported("a", "b", running=500, waiting=900, kv_cache_use=1.0)
    assert {await two.ask("s") for _ in range(10)} == {holder}


async def test_a_session_continues_elsewhere_when_its_replica_is_gone(two: Cluster) -> None:
    holder = await two.ask("s")
    await two.buses[holder].close()
    other = "b" if holder == "a" else "a"
    assert await two.ask("s") == other
    assert len(two.replicas["a"].sessions) + len(two.replicas["b"].sessions) == 2  # each call ran once


async def test_a_replica_that_has_too_many_waiting_is_left_out_of_its_own_sessions_until_it_has_room(
    two: Cluster, bus: Bus
) -> None:
    holder = await two.ask("s")
    other = "b" if holder == "a" else "a"
    replica, service = two.replicas[holder], two.servers[holder].services[0]
    service._most_waiting = 2
    service.limit = 1
    replica.go.clear()
    request = Generate(rollout="r/0/0", timeout_s=60.0, params={"input": []}, session="filler")
    filling = [Calls(bus).call(subjects.REPLICA.of(two.name, holder), request) for _ in range(3)]
    filled = asyncio.gather(*filling)
    await until(lambda: service.held_back == 2 and not service._subscriptions)
    await until(lambda: not two.servers[holder].jobs._background)  # the server knows that it has left
    assert await two.ask("s") == other
    replica.go.set()
    await filled
    await until(lambda: len(service._subscriptions) == 2)
    answer = await Calls(bus).call(subjects.REPLICA.of(two.name, holder), request)
    assert isinstance(answer, Generated)
    assert answer.worker == holder


async def test_calls_leave_a_frozen_replica_for_the_one_that_is_left(
    shared_url: str, bus: Bus, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gymq.bus.rpc.tries.ACCEPT_TIMEOUT_S", 0.1)
    taken = []

    async def ignore(message: Any) -> None:
        taken.append(message)

    async with cluster_of(shared_url, run, bus, "a") as cluster:
        for subject in (subjects.MODEL.of(run), subjects.REPLICA.of(run, "frozen")):
            await bus.subscribe(subject, ignore, group=subjects.MODEL_GROUP)
        await cluster.reported("a", running=50, waiting=0)
        await bus.publish(subjects.LOAD.of(run), encode(Load(worker="frozen", running=0, waiting=0)))
        await until(lambda: "frozen" in cluster.routes._models[run])
        assert await asyncio.gather(*(cluster.ask(f"in flight {number}") for number in range(20))) == ["a"] * 20
        assert taken
        num_taken = len(taken)
        assert await asyncio.gather(*(cluster.ask(f"new {number}") for number in range(20))) == ["a"] * 20
        assert len(taken) == num_taken


async def test_replicas_that_tell_nothing_are_asked_through_the_group(
    two: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gymq.bus.rpc.routing.EXPIRES_S", -1.0)
    assert two.routes.choose(two.name, "s") == ""
    assert await two.ask("s") in ("a", "b")


async def test_a_new_replica_gets_new_sessions(two: Cluster) -> None:
    await two.reported("a", "b", running=50, waiting=0)
    await two.add("c")
    await two.reported("c")
    answered = Counter([await two.ask(f"{number}") for number in range(30)])
    assert answered["c"] >= 10


@pytest.mark.parametrize(
    "body", [b"", b"\xff", b"{}", encode(Generate(rollout="r", timeout_s=1, params={}, session="s"))]
)
async def test_what_is_no_load_is_ignored(two: Cluster, bus: Bus, body: bytes) -> None:
    await bus.publish(subjects.LOAD.of(two.name), body)
    await two.reported("a")
    assert await two.ask("s") in ("a", "b")


async def test_a_made_up_replica_costs_no_call(two: Cluster, bus: Bus) -> None:
    for _ in range(3):
        await bus.publish(subjects.LOAD.of(two.name), encode(Load(worker="nobody", running=0, waiting=0)))
    await two.reported("a", "b", running=100, waiting=0)
    assert {await two.ask(f"{number}") for number in range(20)} <= {"a", "b"}


async def test_a_replica_without_a_load_of_its_own_tells_its_calls(two: Cluster, bus: Bus) -> None:
    replica = two.replicas["a"]
    replica.reported = None
    replica.go.clear()
    request = Generate(rollout="r/0/0", timeout_s=30.0, params={"input": []}, session="s")
    calling = asyncio.create_task(Calls(bus).call(subjects.REPLICA.of(two.name, "a"), request))
    await until(lambda: two.runners["a"]._load().running == 1)
    replica.go.set()
    await calling
    await until(lambda: two.runners["a"]._load().running == 0)


@pytest.mark.parametrize("load", [ModelLoad(-1, 0), "much", ModelLoad(0, None)])  # type: ignore[arg-type]
async def test_a_load_that_makes_no_sense_does_not_stop_a_replica(two: Cluster, load: Any) -> None:
    two.replicas["a"].reported = load
    await two.reported("a")
    assert two.runners["a"]._load() == Load(worker="a", running=0, waiting=0)
    assert await two.ask("s") in ("a", "b")
