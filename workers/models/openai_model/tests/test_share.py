"""Replicas divide the limit of an endpoint among themselves."""

from __future__ import annotations

import asyncio

import pytest
from gymq.workers.models.openai_model.tests.conftest import Start, ask, failure
from gymq.workers.models.openai_model.tests.mock_server import Answer, Asked, MockServer, as_json
from gymq.workers.models.openai_model.tests.replies import response

import gymq


@pytest.fixture(autouse=True)
def _slow(server: MockServer) -> None:
    async def reply(_asked: Asked) -> Answer:
        await asyncio.sleep(0.001)
        return as_json(response("Hello"))

    server.reply = reply


@pytest.mark.parametrize(("whole", "of"), [(10, 3), (8, 4), (2, 3), (1, 1)])
async def test_the_parts_of_all_replicas_are_the_whole(start: Start, server: MockServer, whole: int, of: int) -> None:
    parts = []
    for index in range(of):
        worker = await start(max_concurrent_requests=whole)
        worker.share(index, of)
        parts.append(worker._endpoint.limit.now)
    assert sum(parts) == whole
    assert max(parts) - min(parts) <= 1


async def test_replicas_together_keep_the_limit(start: Start, server: MockServer) -> None:
    workers = [await start(max_concurrent_requests=5) for _ in range(3)]
    for index, worker in enumerate(workers):
        worker.share(index, 3)
    await asyncio.gather(*(ask(worker) for worker in workers for _ in range(10)))
    assert server.most_in_flight <= 5


async def test_nothing_is_sent_before_the_part_is_known(start: Start, server: MockServer) -> None:
    worker = await start(max_concurrent_requests=5)
    worker.share(0, 0)
    waiting = asyncio.create_task(ask(worker))
    await asyncio.sleep(0)
    worker.share(0, 1)
    await waiting
    assert len(server.asked) == 1


async def test_a_replica_without_a_part_passes_its_calls_on(start: Start, server: MockServer) -> None:
    worker = await start(max_concurrent_requests=2)
    worker.share(2, 3)
    found = await failure(worker)
    assert (found.failure_class, len(server.asked)) == (gymq.FailureClass.SATURATED, 0)
    worker.share(1, 2)
    await ask(worker)


async def test_without_a_limit_there_is_nothing_to_divide(start: Start, server: MockServer) -> None:
    go = asyncio.Event()

    async def reply(_asked: Asked) -> Answer:
        await go.wait()
        return as_json(response("Hello"))

    server.reply = reply
    worker = await start()
    worker.share(1, 2)
    asking = asyncio.gather(*(ask(worker) for _ in range(4)))
    await server.busy_with(4)
    go.set()
    await asking
