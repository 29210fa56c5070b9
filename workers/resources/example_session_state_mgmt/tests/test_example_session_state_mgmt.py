"""What the recorded cases cannot say: many sessions at once, calls at the same time, memory that is given back."""

import asyncio
import json
from typing import Any

import pytest
from gymq.workers.resources.example_session_state_mgmt.worker import SessionCounter

import gymq
from gymq.testing import Harness, HarnessSession, prompt, reply

DONE = reply("done")


def row(**members: Any) -> dict[str, Any]:
    return {**prompt("increase, then read"), **members}


async def value(session: HarnessSession) -> int:
    return json.loads((await session.call("get_counter_value", {})).output)["count"]


async def test_a_thousand_sessions_keep_their_own_counters():
    async with Harness(SessionCounter) as env:
        sessions = [await env.session(row(initial_count=n)) for n in range(1000)]
        await asyncio.gather(
            *(session.call("increment_counter", {"count": n}) for n, session in enumerate(sessions)),
            *(session.call("increment_counter", {"count": 1}) for session in sessions),
        )
        verdicts = await asyncio.gather(
            *(session.verify(row(expected_count=2 * n + 1), DONE) for n, session in enumerate(sessions))
        )
    assert {verdict.reward for verdict in verdicts} == {1.0}


async def test_calls_at_the_same_time_in_one_session_all_count():
    async with Harness(SessionCounter) as env:
        session = await env.session(row(initial_count=0))
        await asyncio.gather(*(session.call("increment_counter", {"count": 1}) for _ in range(200)))
        assert await value(session) == 200


async def test_seeding_again_changes_nothing():
    async with Harness(SessionCounter) as env:
        session = await env.session(row(initial_count=3))
        await session.seed(row(initial_count=100))
        assert await value(session) == 3


async def test_the_count_alone_seeds_a_session():
    async with Harness(SessionCounter) as env:
        assert await value(await env.session({"initial_count": 3})) == 3


async def test_seeding_after_a_tool_call_changes_nothing():
    async with Harness(SessionCounter) as env:
        session = await env.session(None)
        await session.call("increment_counter", {"count": 2})
        await session.seed(row(initial_count=100))
        assert await value(session) == 2


async def test_a_session_without_a_counter_does_not_score():
    async with Harness(SessionCounter) as env:
        session = await env.session(None)
        assert (await session.verify(row(expected_count=0), DONE)).reward == 0.0


@pytest.mark.parametrize(("name", "count"), [("increment_counter", "three"), ("Increment_Counter", 3)])
async def test_a_refused_call_does_not_start_a_counter(name, count):
    async with Harness(SessionCounter) as env:
        session = await env.session(None)
        assert (await session.call(name, {"count": count})).status in (404, 422)
        assert (await session.verify(row(expected_count=0), DONE)).reward == 0.0


async def test_reading_starts_a_counter():
    async with Harness(SessionCounter) as env:
        session = await env.session(None)
        assert await value(session) == 0
        assert (await session.verify(row(expected_count=0), DONE)).reward == 1.0


@pytest.mark.parametrize(("count", "added"), [("3", 3), (" 3 ", 3), ("+3", 3), ("3.0", 3), (3.0, 3), (True, 1)])
async def test_what_is_taken_for_an_integer(count, added):
    async with Harness(SessionCounter) as env:
        session = await env.session(row(initial_count=10))
        assert (await session.call("increment_counter", {"count": count})).status == 200
        assert await value(session) == 10 + added


@pytest.mark.parametrize("count", [2.5, None, "three", "0x3", "", [1], {}])
async def test_what_is_no_integer_is_refused_and_changes_nothing(count):
    async with Harness(SessionCounter) as env:
        session = await env.session(row(initial_count=10))
        assert (await session.call("increment_counter", {"count": count})).status == 422
        assert await value(session) == 10


async def test_integers_may_be_of_any_size():
    huge = 10**40
    async with Harness(SessionCounter) as env:
        session = await env.session(row(initial_count=huge))
        await session.call("increment_counter", {"count": huge})
        assert await value(session) == 2 * huge
        assert (await session.verify(row(expected_count=2 * huge), DONE)).reward == 1.0


async def test_seeding_needs_the_initial_count_only():
    async with Harness(SessionCounter) as env:
        with pytest.raises(gymq.InvalidTask, match="initial_count"):
            await env.session(row(expected_count=3))
        await env.session(row(initial_count=3, expected_count="not read yet"))


@pytest.mark.parametrize("expected_count", [6.5, None, "six"])
async def test_verifying_needs_the_expected_count(expected_count):
    async with Harness(SessionCounter) as env:
        session = await env.session(row(initial_count=6))
        with pytest.raises(gymq.InvalidTask, match="expected_count"):
            await session.verify(row(expected_count=expected_count), DONE)


async def test_closed_sessions_leave_no_memory_behind():
    async with Harness(SessionCounter) as env:
        for n in range(100):
            await env.session(row(initial_count=n))
        for session_id in list(env.worker.sessions):
            await env.worker.close(session_id)
        assert env.worker.sessions == {}
