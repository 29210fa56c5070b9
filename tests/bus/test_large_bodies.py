"""The large bodies of a process that are on their way at the same time have a limit in bytes."""

from __future__ import annotations

import asyncio

import pytest

from gymq.bus import Bus
from gymq.bus.large_bodies import LARGE_BYTES, LargeBodies
from gymq.bus.rpc.calls import Calls
from gymq.failures import RolloutError
from gymq.protocol.messages import FailureClass
from tests.support.scripted_replica import ScriptedReplica, ask, call
from tests.support.waiting import DEADLINE_S, until

LARGE = bytes(LARGE_BYTES)


class Body:
    """Counts how often it was encoded."""

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.times = 0

    def encode(self) -> bytes:
        self.times += 1
        return self.body


async def begun(large: LargeBodies, body: Body) -> asyncio.Task[tuple[bytes, int]]:
    """Ask for room, and return when all that can happen without waiting has happened."""
    task = asyncio.create_task(large.encode_when_room(body.encode))
    for _ in range(3):
        await asyncio.sleep(0)
    return task


async def test_small_bodies_do_not_count() -> None:
    large = LargeBodies(most_bytes=1)
    for _ in range(3):
        assert await large.encode_when_room(lambda: LARGE[1:]) == (LARGE[1:], 0)


async def test_a_body_waits_until_there_is_room_and_is_encoded_again() -> None:
    large = LargeBodies(most_bytes=2 * LARGE_BYTES)
    held = [(await large.encode_when_room(lambda: LARGE))[1] for _ in range(2)]
    body = Body(LARGE)
    waiting = await begun(large, body)
    assert (waiting.done(), body.times) == (False, 1)
    large.release(held[0])
    assert await waiting == (LARGE, LARGE_BYTES)
    assert body.times == 2


async def test_bodies_find_room_in_the_order_in_which_they_came() -> None:
    large = LargeBodies(most_bytes=2 * LARGE_BYTES)
    _, first = await large.encode_when_room(lambda: LARGE)
    double = await begun(large, Body(LARGE * 2))
    single = await begun(large, Body(LARGE))
    assert (double.done(), single.done()) == (False, False)  # the second would fit
    large.release(first)
    _, num_bytes = await double
    assert not single.done()
    large.release(num_bytes)
    await single


async def test_one_that_is_larger_than_the_limit_is_sent_alone() -> None:
    large = LargeBodies(most_bytes=LARGE_BYTES)
    huge = LARGE * 5
    body, num_bytes = await large.encode_when_room(lambda: huge)
    assert body == huge
    waiting = await begun(large, Body(LARGE))
    assert not waiting.done()
    large.release(num_bytes)
    await waiting


@pytest.mark.parametrize("after_it_found_room", [False, True])
async def test_who_stops_waiting_leaves_the_room_to_the_next(after_it_found_room: bool) -> None:
    large = LargeBodies(most_bytes=2 * LARGE_BYTES)
    _, held = await large.encode_when_room(lambda: LARGE)
    stopped = await begun(large, Body(LARGE * 2))
    following = await begun(large, Body(LARGE))
    if after_it_found_room:
        large.release(held)
    stopped.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopped
    assert await following == (LARGE, LARGE_BYTES)
    large.release(LARGE_BYTES)
    if not after_it_found_room:
        large.release(held)
    assert await large.encode_when_room(lambda: LARGE * 2) == (LARGE * 2, 2 * LARGE_BYTES)  # nothing is held any more


async def test_the_wait_ends_at_its_deadline() -> None:
    large = LargeBodies(most_bytes=LARGE_BYTES)
    await large.encode_when_room(lambda: LARGE)
    deadline = asyncio.get_running_loop().time()
    with pytest.raises(TimeoutError):
        await large.encode_when_room(lambda: LARGE, deadline)


async def test_a_large_request_is_sent_when_those_before_it_have_arrived(bus: Bus, other_bus: Bus, run: str) -> None:
    bus.large_bodies = LargeBodies(most_bytes=3 * LARGE_BYTES)  # a request has some bytes more
    replica = ScriptedReplica(other_bus, f"{run}-w")
    await replica.serve(run)
    calls = Calls(bus)
    asked = [asyncio.create_task(call(calls, run, ask(wait=True, text="x" * LARGE_BYTES))) for _ in range(6)]
    await until(lambda: len(replica.started) == 6)  # each was accepted, which made room for the next
    assert not any(task.done() for task in asked)
    replica.go.set()
    await asyncio.gather(*asked)
    whole = LARGE * 2
    async with asyncio.timeout(DEADLINE_S):
        assert await bus.large_bodies.encode_when_room(lambda: whole) == (whole, len(whole))  # nothing is held any more


async def test_a_large_request_may_take_as_long_as_any_other(
    bus: Bus, other_bus: Bus, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bus, "max_body_bytes", 1000)
    replica = ScriptedReplica(other_bus, f"{run}-w")
    await replica.serve(run)
    for size in (0, 10_000):
        await call(Calls(bus), run, ask(timeout_s=20_000.0, text="x" * size))
    assert min(replica.time_left) > 10_000.0


async def test_a_large_request_that_finds_no_room_ends_at_its_deadline(bus: Bus, run: str) -> None:
    bus.large_bodies = LargeBodies(most_bytes=LARGE_BYTES)
    await bus.large_bodies.encode_when_room(lambda: LARGE)
    with pytest.raises(RolloutError, match="no room for a large request") as caught:
        await Calls(bus).call(run, ask(timeout_s=0.05, text="x" * LARGE_BYTES))
    assert caught.value.failure_class is FailureClass.DEADLINE_EXCEEDED
