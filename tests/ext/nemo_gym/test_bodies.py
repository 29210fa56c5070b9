"""M1, M2: what a request announces takes no memory, what it sends does, and who sends slowly is given up."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import ExitStack
from typing import Any

import pytest
import uvloop

import gymq.ext.nemo_gym.bridge
from gymq.bus import Bus
from gymq.ext.http import requests as http
from gymq.ext.http.memory import MemoryBudget
from tests.support.waiting import until
from tests.support.world import HOST, World, grading_world, new_client

MIB = 1 << 20
PATIENCE_S = 600.0
JSON = "Content-Type: application/json"


def pytest_asyncio_loop_factories(config: Any, item: Any) -> Mapping[str, Callable[[], Any]]:
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
async def world(shared_url: str, bus: Bus) -> AsyncIterator[World]:
    async with grading_world(shared_url, bus) as made:
        yield made


async def begin(world: World, *headers: str, sent: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Send the beginning of a request for a rollout."""
    reader, writer = await asyncio.open_connection(HOST, int(world.head.rpartition(":")[2]))
    writer.write("\r\n".join(["POST /run HTTP/1.1", "Host: localhost", JSON, *headers, "", ""]).encode() + sent)
    await writer.drain()
    return reader, writer


def taken(world: World) -> int:
    """Bytes of the budget that bodies hold."""
    assert world.bridge is not None
    return sum(share.num_bytes for share in world.bridge._context.bodies._shares)


async def test_a_compressed_body_is_refused_before_it_is_read(world: World) -> None:
    await world.start_bridge()
    small = gzip.compress(b" " * (64 * MIB))
    reader, writer = await begin(world, "Content-Encoding: gzip", f"Content-Length: {len(small)}", sent=b"")
    assert b" 415 " in await asyncio.wait_for(reader.readline(), PATIENCE_S)
    writer.close()
    assert not world.engine.requests


@pytest.mark.parametrize("announced", ["Content-Length: 268435456", "Transfer-Encoding: chunked"])
async def test_hung_uploads_do_not_stop_large_rows(
    world: World, monkeypatch: pytest.MonkeyPatch, announced: str
) -> None:
    monkeypatch.setattr(gymq.ext.nemo_gym.bridge, "LARGE_BODIES_BYTES", 4 * MIB)
    await world.start_bridge(on_untrainable="allow")
    hung = [await begin(world, announced, sent=b"1\r\n{\r\n" if "chunked" in announced else b"{") for _ in range(4)]
    async with new_client(world) as client:
        body = json.dumps(world.row(blob="x" * (3 * MIB))).encode()

        async def parts() -> AsyncIterator[bytes]:
            for start in range(0, len(body), 100_000):
                yield body[start : start + 100_000]

        for data in (body, parts()):
            headers = {"Content-Type": "application/json"}
            async with (
                asyncio.timeout(PATIENCE_S),
                client.session.post(f"{world.head}/run", data=data, headers=headers) as answer,
            ):
                assert answer.status == 200
    for _, writer in hung:
        writer.close()
    await until(lambda: taken(world) == 0)


async def test_bodies_that_are_larger_than_the_budget_together_all_arrive(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gymq.ext.nemo_gym.bridge, "LARGE_BODIES_BYTES", 2 * MIB)
    await world.start_bridge(on_untrainable="allow")
    async with new_client(world) as client:
        rows = [world.row(blob="x" * (4 * MIB)) for _ in range(6)]
        results = await asyncio.wait_for(asyncio.gather(*map(client.run, rows)), PATIENCE_S)
    assert [status for status, _ in results] == [200] * 6
    assert taken(world) == 0


@pytest.mark.parametrize("sent", [b"", b"{", b"{" * 3 * MIB])
async def test_who_stops_to_send_is_given_up_long_before_the_timeout(
    world: World, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(http, "BODY_GRACE_S", 0.2)
    monkeypatch.setattr(http, "LEAST_BYTES_PER_S", 30 * MIB)
    await world.start_bridge(body_timeout_s=24 * 3600.0)
    reader, writer = await begin(world, "Content-Length: 100000000", sent=sent)
    assert b" 408 " in await asyncio.wait_for(reader.readline(), PATIENCE_S)
    writer.close()
    await until(lambda: taken(world) == 0)


async def test_who_sends_at_the_least_rate_has_more_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte moves the deadline: all of this one takes several times the grace."""
    monkeypatch.setattr(http, "BODY_GRACE_S", 0.5)
    monkeypatch.setattr(http, "LEAST_BYTES_PER_S", 1)
    await world.start_bridge(on_untrainable="allow")
    body = json.dumps(world.row(blob="x" * 1000)).encode()
    reader, writer = await begin(world, f"Content-Length: {len(body)}", sent=body[:1000])
    await asyncio.sleep(1.5)
    writer.write(body[1000:])
    assert b" 200 " in await asyncio.wait_for(reader.readline(), PATIENCE_S)
    writer.close()


# The budget -----------------------------------------------------------------------------------------------------------


async def test_the_first_never_waits_and_the_others_follow_in_their_order() -> None:
    budget = MemoryBudget(10)
    ended = ExitStack()
    first = ended.enter_context(budget.share())
    with budget.share() as second, budget.share() as third:
        assert second.take(8)
        assert first.take(7)  # beyond the budget
        assert not second.take(1)
        assert not third.take(1)
        waiting = [asyncio.create_task(share.wait(1)) for share in (third, second)]
        await asyncio.sleep(0)
        assert not any(task.done() for task in waiting)
        assert first.take(100)
        assert (first.num_bytes, second.num_bytes) == (107, 8)
        ended.close()
        await asyncio.wait_for(asyncio.gather(*waiting), PATIENCE_S)
        assert (second.num_bytes, third.num_bytes) == (9, 1)
    with budget.share() as alone, budget.share() as other:
        assert other.take(10)
        assert alone.take(1)


async def test_who_hangs_up_while_waiting_gives_back_what_it_held() -> None:
    budget = MemoryBudget(10)
    with budget.share() as first:
        assert first.take(10)

        async def upload() -> None:
            with budget.share() as share:
                assert not share.take(5)
                await share.wait(5)

        uploads = [asyncio.create_task(upload()) for _ in range(3)]
        await asyncio.sleep(0)
        for task in uploads:
            task.cancel()
        await asyncio.gather(*uploads, return_exceptions=True)
        last = asyncio.create_task(upload())
        await asyncio.sleep(0)
    # Room is made and the client hangs up in the same moment.
    last.cancel()
    await asyncio.gather(last, return_exceptions=True)
    assert last.cancelled()
    with budget.share(), budget.share() as share:
        assert share.take(10)
