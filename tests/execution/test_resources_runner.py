"""Resources workers on the bus: many sessions, several replicas, leaving without losing a session."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

import gymq
from gymq.bus import Bus
from gymq.bus.rpc.calls import Calls
from gymq.bus.rpc.serving import Server
from gymq.execution import resources_runner
from gymq.execution.resources_runner import ResourcesRunner
from gymq.failures import RolloutError
from gymq.processes import KillableProcesses
from gymq.protocol import subjects
from gymq.protocol.codec import Decoder, encode
from gymq.protocol.messages import (
    Call,
    Close,
    FailureClass,
    Message,
    Seed,
    Seeded,
    ToolCall,
    ToolResult,
    Verified,
    Verify,
)
from gymq.testing import prompt, reply
from tests.support.scripted_replica import frames
from tests.support.waiting import DEADLINE_S, until

Connect = Callable[[str], Awaitable[Bus]]
ROW = json.dumps(prompt("count")).encode()


class Counter(gymq.Resources[gymq.Row, list[int]]):
    """Counts."""

    async def open(self, row: gymq.Row) -> list[int]:
        return []

    @gymq.tool
    async def add(self, state: list[int], amount: int) -> int:
        """Add."""
        await asyncio.sleep(0.001 * (amount % 3))
        state.append(amount)
        return sum(state)

    async def verify(self, request: gymq.VerifyRequest[gymq.Row, list[int]]) -> gymq.Verdict:
        state = request.state
        assert state is not None
        return gymq.Verdict(float(sum(state)), amounts=state)


class Pure(gymq.Resources[gymq.Row]):
    """Keeps no state."""

    action: Any = None

    @gymq.tool
    async def double(self, amount: int) -> int:
        """Double."""
        return 2 * amount

    async def verify(self, request: gymq.VerifyRequest[gymq.Row]) -> gymq.Verdict:
        verdict: gymq.Verdict = self.action() if self.action else gymq.Verdict(1.0)
        return verdict


class Replica:
    """One worker process's part, on a connection of its own."""

    def __init__(self, bus: Bus, author: gymq.Resources[Any]) -> None:
        self.runner = ResourcesRunner(author, KillableProcesses())
        self.server = Server(bus, f"w-{bus.box[-8:]}")
        self.bus = bus

    async def start(self) -> "Replica":
        await self.server.start()
        await self.runner.serve(self.server)
        await self.bus.flush()
        return self

    async def drain(self, deadline_s: float) -> None:
        """As a worker process does."""
        await self.runner.drain(deadline_s)
        await self.server.drain(0)
        await self.runner.close()


Start = Callable[..., Awaitable[Replica]]


@pytest.fixture
async def start(shared_url: str, connect: Connect) -> AsyncIterator[Start]:
    """Starts a replica of a resources worker."""
    replicas: list[Replica] = []

    async def new(author: gymq.Resources[Any]) -> Replica:
        replicas.append(await Replica(await connect(shared_url), author).start())
        return replicas[-1]

    yield new
    for replica in replicas:
        await replica.drain(0)


@pytest.fixture
def calls(bus: Bus) -> Calls:
    return Calls(bus)


async def ask(calls: Calls, subject: str, request: Call) -> Message:
    async with asyncio.timeout(DEADLINE_S):
        return await calls.call(subject, request)


async def seed(calls: Calls, name: str) -> str | None:
    seeded = await ask(calls, subjects.SEED.of(name), Seed(rollout="r", timeout_s=60.0, row=ROW))
    assert isinstance(seeded, Seeded)
    return seeded.session


async def session(calls: Calls, name: str) -> str:
    address = await seed(calls, name)
    assert address is not None
    return address


def add(number: int, amount: int) -> ToolCall:
    return ToolCall(rollout="r", timeout_s=60.0, number=number, name="add", arguments=json.dumps({"amount": amount}))


def verify(number: int = 99) -> Verify:
    return Verify(rollout="r", timeout_s=60.0, number=number, row=ROW, response=reply("done"))


async def test_a_session_is_seeded_used_verified_and_closed(calls: Calls, start: Start, run: str) -> None:
    replica = await start(Counter(name=run))
    address = await session(calls, run)
    assert await ask(calls, address, add(1, 2)) == ToolResult(output="2")
    assert await ask(calls, address, add(2, 3)) == ToolResult(output="5")
    assert await ask(calls, address, verify()) == Verified(reward=5.0, verdict={"amounts": [2, 3]})
    await calls.send(address, Close(rollout="r", timeout_s=60.0))
    await until(lambda: not replica.runner.local.sessions)
    with pytest.raises(RolloutError) as error:
        await ask(calls, address, add(3, 1))
    assert error.value.failure_class is FailureClass.SESSION_LOST


async def test_two_replicas_with_200_sessions_each_keep_their_counters(calls: Calls, start: Start, run: str) -> None:
    replicas = [await start(Counter(name=run)) for _ in range(2)]

    async def rollout(number: int) -> None:
        address = await session(calls, run)
        total = 0
        for step in range(5):
            total += number + step
            assert await ask(calls, address, add(step, number + step)) == ToolResult(output=str(total))
        verified = await ask(calls, address, verify())
        assert isinstance(verified, Verified)
        assert verified.verdict == {"amounts": [number + step for step in range(5)]}

    await asyncio.gather(*(rollout(number) for number in range(400)))
    held = [len(replica.runner.local.sessions) for replica in replicas]
    assert sum(held) == 400
    assert min(held) > 100


async def test_a_call_repeated_over_the_bus_runs_once(calls: Calls, start: Start, run: str) -> None:
    await start(Counter(name=run))
    address = await session(calls, run)
    answers = await asyncio.gather(*(ask(calls, address, add(1, 2)) for _ in range(20)))
    assert answers == [ToolResult(output="2")] * 20
    assert await ask(calls, address, verify()) == Verified(reward=2.0, verdict={"amounts": [2]})


@pytest.mark.nightly
async def test_ten_thousand_sessions_live_in_one_worker(calls: Calls, start: Start, run: str) -> None:
    replica = await start(Counter(name=run))
    some = asyncio.Semaphore(500)

    async def open_one() -> str:
        async with some:
            return await session(calls, run)

    addresses = await asyncio.gather(*(open_one() for _ in range(10_000)))
    assert len(set(addresses)) == len(replica.runner.local.sessions) == 10_000
    for address in addresses[::100]:
        assert await ask(calls, address, add(1, 3)) == ToolResult(output="3")


async def test_a_worker_without_state_says_so_and_needs_no_seed_any_more(calls: Calls, start: Start, run: str) -> None:
    replica = await start(Pure(name=run))
    assert await seed(calls, run) is None
    seeds = next(service for service in replica.server.services if service.subject == subjects.SEED.of(run))
    for _ in range(3):
        assert await ask(calls, subjects.STATELESS.of(run), verify()) == Verified(reward=1.0)
    assert seeds.num_requests == 1


async def test_calls_to_a_worker_without_state_go_to_all_replicas(calls: Calls, start: Start, run: str) -> None:
    replicas = [await start(Pure(name=run)) for _ in range(2)]
    for _ in range(50):
        await ask(calls, subjects.STATELESS.of(run), verify())
    counts = [
        service.num_requests
        for replica in replicas
        for service in replica.server.services
        if service.subject == subjects.STATELESS.of(run)
    ]
    assert sum(counts) == 50
    assert min(counts) > 5


async def test_a_worker_that_keeps_state_by_now_answers_as_a_lost_session(calls: Calls, start: Start, run: str) -> None:
    await start(Counter(name=run))
    for request in (add(1, 1), verify()):
        with pytest.raises(RolloutError) as error:
            await ask(calls, subjects.STATELESS.of(run), request)
        assert error.value.failure_class is FailureClass.SESSION_LOST


@pytest.mark.parametrize("row", [b"{}", b"nonsense", b"\xff"])
async def test_a_row_that_does_not_fit_is_an_invalid_task(calls: Calls, start: Start, run: str, row: bytes) -> None:
    await start(Counter(name=run))
    with pytest.raises(RolloutError) as error:
        await ask(calls, subjects.SEED.of(run), Seed(rollout="r", timeout_s=60.0, row=row))
    assert (error.value.failure_class, error.value.retryable) == (FailureClass.INVALID_TASK, False)


@pytest.mark.parametrize("member", [2**64, object(), {"a": [2**70]}, lambda: 1])
async def test_a_verdict_that_cannot_be_sent_is_a_failure_of_the_verifier(
    calls: Calls, start: Start, run: str, member: Any
) -> None:
    author = Pure(name=run)
    author.action = lambda: gymq.Verdict(1.0, member=member)
    await start(author)
    with pytest.raises(RolloutError, match=r"(no wire form|cannot be encoded).*\$\.verdict\.member") as error:
        await ask(calls, subjects.STATELESS.of(run), verify())
    assert error.value.failure_class is FailureClass.VERIFIER_FAILED


async def test_a_session_can_be_used_by_hand(bus: Bus, start: Start, run: str) -> None:
    await start(Counter(name=run))
    by_hand = {"type": "seed.v1", "rollout": "x", "timeout_s": 30, "row": json.loads(ROW)}
    (seeded,) = await frames(bus, subjects.SEED.of(run), json.dumps(by_hand).encode(), 1)
    address = Decoder(Seeded)(seeded).session
    call = by_hand | {"type": "tool_call.v1", "number": 1, "name": "add", "arguments": '{"amount": 4}'}
    del call["row"]
    (result,) = await frames(bus, address, json.dumps(call).encode(), 1)
    assert Decoder(ToolResult)(result).output == "4"


async def test_idle_sessions_are_closed(calls: Calls, start: Start, run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources_runner, "SWEEP_EVERY_S", 0.05)

    class ShortLived(Counter):
        session_ttl_s = 0.2

    replica = await start(ShortLived(name=run))
    address = await session(calls, run)
    await until(lambda: not replica.runner.local.sessions)
    with pytest.raises(RolloutError) as error:
        await ask(calls, address, add(1, 1))
    assert error.value.failure_class is FailureClass.SESSION_LOST


async def test_a_full_worker_lets_others_open_the_session(calls: Calls, start: Start, run: str) -> None:
    class Few(Counter):
        max_sessions = 3

    few, many = await start(Few(name=run)), await start(Counter(name=run))
    for _ in range(10):
        await session(calls, run)
    assert len(few.runner.local.sessions) <= 3
    assert len(many.runner.local.sessions) >= 7


async def test_a_worker_that_drains_keeps_its_sessions_until_they_end(calls: Calls, start: Start, run: str) -> None:
    leaving = await start(Counter(name=run))
    address = await session(calls, run)
    await ask(calls, address, add(1, 1))
    await leaving.server.leave("gym.seed.")
    draining = asyncio.create_task(leaving.runner.drain(60))
    staying = await start(Counter(name=run))
    for _ in range(10):
        await session(calls, run)
    assert len(staying.runner.local.sessions) == 10
    assert await ask(calls, address, add(2, 1)) == ToolResult(output="2")
    assert not draining.done()
    await calls.send(address, Close(rollout="r", timeout_s=60.0))
    await asyncio.wait_for(draining, DEADLINE_S)


async def test_a_drain_ends_at_its_deadline_and_closes_what_is_open(calls: Calls, start: Start, run: str) -> None:
    closed = []

    class Closing(Counter):
        async def close(self, state: list[int]) -> None:
            closed.append(state)
            raise OSError("cannot be closed")

    replica = await start(Closing(name=run))
    for _ in range(3):
        await session(calls, run)
    await asyncio.wait_for(replica.drain(0.1), DEADLINE_S)
    assert len(closed) == 3
    assert not replica.runner.local.sessions


async def test_a_drain_stops_the_calls_that_run_at_its_deadline(calls: Calls, start: Start, run: str) -> None:
    class Waiting(Counter):
        running = asyncio.Event()
        closed = False

        @gymq.tool
        async def wait(self) -> None:
            """Wait for ever."""
            self.running.set()
            await asyncio.Event().wait()

        async def close(self, state: list[int]) -> None:
            self.closed = True

    author = Waiting(name=run)
    replica = await start(author)
    address = await session(calls, run)
    request = ToolCall(rollout="r", timeout_s=60.0, number=1, name="wait", arguments="{}")
    asking = asyncio.create_task(calls.call(address, request))
    await author.running.wait()
    await asyncio.wait_for(replica.drain(0.1), DEADLINE_S)
    assert author.closed
    with pytest.raises(RolloutError, match="is gone") as failed:
        await asyncio.wait_for(asking, DEADLINE_S)
    assert failed.value.failure_class is FailureClass.SESSION_LOST


async def test_requests_of_the_wrong_kind_are_refused(bus: Bus, start: Start, run: str) -> None:
    await start(Counter(name=run))
    for subject in (subjects.SEED.of(run), subjects.STATELESS.of(run)):
        (answer,) = await frames(bus, subject, encode(Seeded(session=None)), 1)
        assert b"bad_request" in answer


async def test_a_session_that_is_opened_for_a_caller_who_does_not_wait_any_more_is_closed(
    calls: Calls, start: Start, run: str
) -> None:
    replica = await start(Counter(name=run))
    for num_turns in range(40):  # of the event loop: before the seed is sent, on its way, and when the reply is there
        seeding = asyncio.create_task(seed(calls, run))
        for _ in range(num_turns):
            await asyncio.sleep(0)
        if not seeding.cancel():
            await ask(calls, await seeding or "", Close(rollout="r", timeout_s=60.0))
    address = await session(calls, run)  # all seeds before it were answered
    await until(lambda: len(replica.runner.local.sessions) == 1)
    await ask(calls, address, Close(rollout="r", timeout_s=60.0))
