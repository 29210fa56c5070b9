"""Calls are repeated where that is safe, a bounded number of times."""

import asyncio
from collections.abc import Callable

import pytest
from nats.aio.msg import Msg

from gymq.bus import Bus
from gymq.bus.rpc import tries
from gymq.bus.rpc.calls import Calls
from gymq.failures import RolloutError
from gymq.protocol.codec import encode
from gymq.protocol.messages import Fail, FailureClass, Generate, Generated, Message
from tests.support.waiting import DEADLINE_S

from .conftest import Change


def ask(timeout_s: float = 3600.0) -> Generate:
    return Generate(rollout="x", timeout_s=timeout_s, params={}, session="s")


class Replies:
    """A worker that answers the n-th request with the n-th reply; None: not at all."""

    def __init__(self, bus: Bus, reply: Callable[[int], Message | None]) -> None:
        self.num_requests = 0
        self._bus = bus
        self._reply = reply

    async def serve(self, subject: str) -> None:
        await self._bus.subscribe(subject, self._on_message)

    async def _on_message(self, message: Msg) -> None:
        reply = self._reply(self.num_requests)
        self.num_requests += 1
        if reply is not None:
            await self._bus.publish(message.reply, encode(reply))


def failure(failure_class: FailureClass) -> Fail:
    return Fail(failure_class=failure_class, message="no", retryable=True)


async def called(bus: Bus, subject: str, request: Generate) -> Message:
    async with asyncio.timeout(DEADLINE_S):
        return await Calls(bus).call(subject, request)


@pytest.mark.parametrize(
    "failure_class", sorted(set(FailureClass) - {FailureClass.SATURATED, FailureClass.WORKER_LOST})
)
async def test_a_failure_that_the_worker_tells_is_not_asked_for_again(
    bus: Bus, run: str, change: Change, failure_class: FailureClass
) -> None:
    worker = Replies(bus, lambda _number: failure(failure_class))
    await worker.serve(run)
    with pytest.raises(RolloutError) as failed:
        await called(bus, run, ask())
    assert failed.value.failure_class is failure_class
    assert worker.num_requests == 1


async def test_a_call_waits_until_a_full_worker_has_room(bus: Bus, run: str, change: Change) -> None:
    full = failure(FailureClass.SATURATED)
    worker = Replies(bus, lambda number: full if number < 50 else Generated(response={}))
    await worker.serve(run)
    assert await called(bus, run, ask()) == Generated(response={})


async def test_a_call_asks_a_full_worker_only_so_often(bus: Bus, run: str, change: Change) -> None:
    change("call", tries=5)
    worker = Replies(bus, lambda _number: failure(FailureClass.SATURATED))
    await worker.serve(run)
    with pytest.raises(RolloutError) as failed:
        await called(bus, run, ask())
    assert failed.value.failure_class is FailureClass.SATURATED
    assert worker.num_requests == 5


async def test_a_call_asks_a_full_worker_only_until_its_time_is_over(bus: Bus, run: str, change: Change) -> None:
    # The last request is answered 1 s before the deadline; one that is under way at the deadline has no reply.
    change("call", first_pause_s=1.5, longest_pause_s=1.5, jitter=0.0)
    worker = Replies(bus, lambda _number: failure(FailureClass.SATURATED))
    await worker.serve(run)
    with pytest.raises(RolloutError) as failed:
        await called(bus, run, ask(timeout_s=2.5))
    assert failed.value.failure_class is FailureClass.SATURATED
    assert worker.num_requests > 1


@pytest.mark.parametrize("reply", [None, failure(FailureClass.WORKER_LOST)], ids=["without a word", "with a reply"])
async def test_a_call_that_is_lost_is_made_only_so_often(
    bus: Bus, run: str, change: Change, monkeypatch: pytest.MonkeyPatch, reply: Fail | None
) -> None:
    monkeypatch.setattr(tries, "ACCEPT_TIMEOUT_S", 0.1)
    change("call", tries=3)
    worker = Replies(bus, lambda _number: reply)
    await worker.serve(run)
    with pytest.raises(RolloutError) as failed:
        await called(bus, run, ask())
    assert failed.value.failure_class is FailureClass.WORKER_LOST
    assert worker.num_requests == 3


async def test_losses_and_full_workers_are_counted_apart(
    bus: Bus, run: str, change: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tries, "ACCEPT_TIMEOUT_S", 1.0)
    full, lost = failure(FailureClass.SATURATED), None
    replies = [full, full, lost, full, full, lost, full, Generated(response={})]
    worker = Replies(bus, lambda number: replies[number])
    await worker.serve(run)
    assert await called(bus, run, ask()) == Generated(response={})


async def test_a_call_waits_for_a_worker_that_comes_within_its_budget(bus: Bus, run: str, change: Change) -> None:
    calling = asyncio.create_task(called(bus, run, ask()))
    await asyncio.sleep(0.2)
    assert not calling.done()
    await Replies(bus, lambda _number: Generated(response={})).serve(run)
    assert await calling == Generated(response={})


async def test_a_call_that_nobody_serves_ends_when_its_budget_is_spent(bus: Bus, run: str, change: Change) -> None:
    change("call", budget_s=0.2)
    with pytest.raises(RolloutError) as failed:
        await called(bus, run, ask())
    assert failed.value.failure_class is FailureClass.NO_WORKER


async def test_a_call_waits_longer_for_workers_that_live_but_are_full(bus: Bus, run: str, change: Change) -> None:
    async def live(message: Msg) -> None:
        await bus.publish(message.reply, b'{"name": "m", "id": "w"}')

    change("call", budget_s=0.05)
    await bus.subscribe(f"$SRV.PING.{run}", live)
    calling = asyncio.create_task(called(bus, f"gym.model.{run}", ask()))
    await asyncio.sleep(0.5)  # several times the budget
    assert not calling.done()
    await Replies(bus, lambda _number: Generated(response={})).serve(f"gym.model.{run}")
    assert await calling == Generated(response={})
