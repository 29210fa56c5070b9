"""How many requests are on their way at a time follows what the endpoint says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from gymq.workers.models.openai_model.limit import AdaptiveLimit
from gymq.workers.models.openai_model.tests.conftest import Start, ask
from gymq.workers.models.openai_model.tests.mock_server import Answer, Asked, MockServer, as_json, error
from gymq.workers.models.openai_model.tests.replies import response

from gymq.authoring import CurrentCall, Precedence, current_call
from gymq.protocol.messages import Priority


class Holder:
    """Requests that hold a slot until they are released."""

    def __init__(self, limit: AdaptiveLimit) -> None:
        self.limit = limit
        self.inside: list[int] = []
        self.rounds: dict[int, int] = {}
        self.tasks: dict[int, asyncio.Task[None]] = {}
        self.ends: dict[int, asyncio.Event] = {}

    async def begin(self, *names: int) -> None:
        for name in names:
            self.ends[name] = asyncio.Event()
            self.tasks[name] = asyncio.create_task(self._hold(name))
        await settle()

    async def end(self, *names: int) -> None:
        for name in names:
            self.ends[name].set()
            await self.tasks[name]
        await settle()

    async def _hold(self, name: int) -> None:
        async with self.limit.slot() as sent_in:
            self.rounds[name] = sent_in
            self.inside.append(name)
            await self.ends[name].wait()
            self.inside.remove(name)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_no_more_than_the_limit_and_first_come_first_served() -> None:
    holder = Holder(AdaptiveLimit(2))
    await holder.begin(1, 2, 3, 4)
    assert holder.inside == [1, 2]
    await holder.end(1)
    assert holder.inside == [2, 3]


async def test_urgent_requests_go_before_those_that_wait() -> None:
    holder = Holder(AdaptiveLimit(1))
    await holder.begin(1, 2, 3)
    current_call.set(CurrentCall("r/0/0", float("inf"), Precedence(Priority.URGENT)))
    await holder.begin(4)
    await holder.end(1)
    assert holder.inside == [4]


async def test_an_overload_halves_the_limit_once_for_all_that_were_sent_together() -> None:
    limit = AdaptiveLimit(8)
    holder = Holder(limit)
    await holder.begin(*range(8))
    for name in range(8):
        limit.overloaded(holder.rounds[name], 0.0)
    assert limit.now == 4
    await holder.end(*range(8))
    await holder.begin(*range(8))
    assert len(holder.inside) == 4
    limit.overloaded(holder.rounds[0], 0.0)
    assert limit.now == 2


async def test_without_a_configured_limit_half_of_what_was_on_its_way_is_the_first_one() -> None:
    limit = AdaptiveLimit(None)
    holder = Holder(limit)
    await holder.begin(*range(6))
    limit.overloaded(holder.rounds[0], 0.0)
    assert limit.now == 3


async def test_at_least_one_request_goes_through() -> None:
    limit = AdaptiveLimit(8)
    for _ in range(5):
        async with limit.slot() as sent_in:
            limit.overloaded(sent_in, 0.0)
    assert limit.now == 1


async def test_each_full_round_of_answers_allows_one_more_up_to_what_is_configured() -> None:
    limit = AdaptiveLimit(4)
    async with limit.slot() as sent_in:
        limit.overloaded(sent_in, 0.0)
    seen = []
    for _ in range(12):
        limit.answered()
        seen.append(limit.now)
    assert seen == [2, 2, 3, 3, 3, 4, 4, 4, 4, 4, 4, 4]


async def test_nothing_is_sent_while_the_endpoint_wants_to_be_left_alone() -> None:
    limit = AdaptiveLimit(8)
    async with limit.slot() as sent_in:
        limit.overloaded(sent_in, 0.02)
    resume_at = asyncio.get_running_loop().time() + 0.01
    async with asyncio.timeout(300), limit.slot():
        assert asyncio.get_running_loop().time() >= resume_at


async def test_a_wish_without_measure_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gymq.workers.models.openai_model.limit.LONGEST_PAUSE_S", 0.01)
    limit = AdaptiveLimit(8)
    async with limit.slot() as sent_in:
        limit.overloaded(sent_in, 1e9)
    async with asyncio.timeout(300), limit.slot():
        pass


async def test_who_stops_waiting_takes_no_slot_with_it() -> None:
    limit = AdaptiveLimit(1)
    holder = Holder(limit)
    await holder.begin(1, 2, 3)
    holder.tasks[2].cancel()
    await holder.end(1)
    assert holder.inside == [3]


async def test_who_is_cancelled_at_the_moment_of_its_turn_gives_it_back() -> None:
    limit = AdaptiveLimit(1)
    holder = Holder(limit)
    async with limit.slot():
        await holder.begin(1, 2)
    holder.tasks[1].cancel()  # the slot is its own, but it has not run since
    await settle()
    assert holder.inside == [2]
    await holder.end(2)
    assert limit.in_flight == 0


async def test_a_lower_limit_lets_what_runs_end_and_a_higher_one_lets_waiting_ones_through() -> None:
    limit = AdaptiveLimit(3)
    holder = Holder(limit)
    await holder.begin(1, 2, 3, 4)
    limit.set_most(1)
    await holder.end(1, 2)
    assert holder.inside == [3]
    limit.set_most(2)
    await settle()
    assert holder.inside == [3, 4]


def only(capacity: int, server: MockServer) -> Callable[[Asked], Awaitable[Answer]]:
    """An endpoint that answers 429 to what exceeds its capacity."""

    async def reply(_asked: Asked) -> Answer:
        if server.in_flight > capacity:
            return error("429 Too Many Requests", "slow down")
        await asyncio.sleep(0.001)
        return as_json(response("Hello"))

    return reply


async def test_an_endpoint_that_is_too_small_gets_everything_answered(
    start: Start, server: MockServer, waits: list[float]
) -> None:
    server.reply = only(3, server)
    worker = await start(max_concurrent_requests=64)
    replies = await asyncio.gather(*(ask(worker) for _ in range(40)))
    assert len(replies) == 40
    assert worker._endpoint.limit.now < 64
