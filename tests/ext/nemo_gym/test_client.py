"""Trainers send rows through the client and get results as they complete."""

import asyncio
import gc
import inspect
import json
import pickle
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from gymq.ext.nemo_gym.client import run_examples
from gymq.ext.shared.row_failed import RowFailed
from tests.support.engine import Body, say
from tests.support.world import Client, World


async def test_results_arrive_in_the_order_of_their_completion_with_the_callers_own_rows(
    client: Client, world: World
) -> None:
    hold = asyncio.Event()

    async def turn(body: Body) -> Body:
        if "slow" in json.dumps(body["messages"]):
            await hold.wait()
        return say("done")

    world.engine.turn = turn
    rows = [world.row("slow" if number == 0 else "quick", _rowidx=number) for number in range(8)]
    given = run_examples(world.head, rows)
    assert isinstance(given, Iterator)
    assert not isinstance(given, AsyncIterator)
    arrived: list[Any] = []
    for awaitable in given:
        assert inspect.isawaitable(awaitable)
        if len(arrived) == 7:
            hold.set()
        row, result = await awaitable
        assert result["reward"] == 1.0
        arrived.append(row)
    assert arrived[-1] is rows[0]
    assert sorted(map(id, arrived)) == sorted(map(id, rows))


async def test_a_semaphore_limits_the_rows_in_flight(client: Client, world: World) -> None:
    running, most = 0, 0

    async def turn(body: Body) -> Body:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return say("done")

    world.engine.turn = turn
    limit = asyncio.Semaphore(2)
    for awaitable in run_examples(world.head, [world.row(str(number)) for number in range(12)], limit=limit):
        await awaitable
    assert most <= 2


async def test_a_poison_row_costs_no_sibling(client: Client, world: World) -> None:
    rows = [world.row(str(number), _rowidx=number) for number in range(16)]
    rows[5]["verdict"] = {"fails": {"class": "component_failed"}}
    results: list[Body] = []
    failures: list[RowFailed] = []
    for awaitable in run_examples(world.head, rows):
        try:
            results.append((await awaitable)[0])
        except RowFailed as failed:
            failures.append(failed)
    assert [row["_rowidx"] for row in sorted(results, key=lambda row: row["_rowidx"])] == [
        number for number in range(16) if number != 5
    ]
    (failure,) = failures
    assert failure.status == 500
    assert json.loads(failure.response_content)["error"]["class"] == "component_failed"
    before = len(world.engine.requests)
    del rows[5]["verdict"]
    (again,) = list(run_examples(world.head, [rows[5]]))
    assert (await again)[0] is rows[5]
    assert len(world.engine.requests) == before + 1


async def test_who_stops_at_the_first_failure_is_not_warned_of_the_others(
    client: Client, world: World, recwarn: pytest.WarningsRecorder
) -> None:
    given = run_examples(world.head, [world.row(verdict={"fails": {"class": "invalid_task"}})] * 3)
    with pytest.raises(RowFailed):
        await next(given)
    del given
    gc.collect()
    assert not [warning for warning in recwarn if "never awaited" in str(warning.message)]


async def test_what_a_row_raises_survives_pickling(client: Client, world: World) -> None:
    (awaitable,) = run_examples(world.head, [world.row(verdict={"fails": {"class": "invalid_task"}})])
    with pytest.raises(RowFailed) as caught:
        await awaitable
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.status, again.response_content) == (caught.value.status, caught.value.response_content)
    assert again.status == 422


async def test_a_bridge_that_is_not_there_fails_every_row(client: Client, world: World) -> None:
    (awaitable,) = run_examples("http://127.0.0.1:1", [world.row()])
    with pytest.raises(RowFailed, match="no answer"):
        await awaitable


@pytest.mark.parametrize("body", [b"<html>", b'{"a":' * 100_000 + b"1" + b"}" * 100_000])
async def test_an_answer_that_is_no_result_fails_its_row_and_no_other(body: bytes) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=body if await request.json() == {"odd": True} else b'{"reward": 1.0}')

    server = TestServer(web.Application())
    server.app.router.add_post("/run", answer)
    async with server:
        good, odd = run_examples(str(server.make_url("")).rstrip("/"), [{"odd": True}, {}])
        assert (await good)[1] == {"reward": 1.0}
        with pytest.raises(RowFailed, match="not a result"):
            await odd
