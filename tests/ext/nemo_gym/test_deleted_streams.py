"""A stream that is deleted ends whatever waits for rollouts, with one sentence: what it held comes no more."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from gymq.bus import Bus, BusError, streams
from gymq.cluster.server import EmbeddedServer
from gymq.data.materialise import MaterialiseOptions
from gymq.runs.collection.collection import Collection
from gymq.runs.collection.options import CollectOptions
from gymq.runs.collection.plan import RunPlan
from gymq.trainer import TrainingRun
from tests.support.engine import Body, say
from tests.support.queues import queues_of_runs
from tests.support.waiting import until, until_answer
from tests.support.world import World, grading_world, new_client


@pytest.fixture
async def own_world(own_server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    """A world on a server whose streams the test may delete, with a bridge; looks for them follow at once."""
    monkeypatch.setattr(streams, "WATCH_EVERY_S", 0.05)
    async with AsyncExitStack() as stack:
        bus = await Bus.connect(own_server.url, role="test", name="test")
        stack.push_async_callback(bus.close)
        await stack.enter_async_context(queues_of_runs(bus))
        world = await stack.enter_async_context(grading_world(own_server.url, bus))
        await world.start_bridge()
        yield world


async def collect(world: World, folder: Path) -> None:
    (folder / "rows.jsonl").write_text(json.dumps(world.row()) + "\n")
    bus = await Bus.connect(world.url, role="client", name="collect")
    async with bus:
        await Collection(
            bus, RunPlan(CollectOptions(folder / "rows.jsonl", folder / "out.jsonl", MaterialiseOptions()))
        ).run()


async def train(world: World, run: str) -> None:
    training = await TrainingRun.connect(world.url, run)
    try:
        async for _ in training.run_rollouts([world.row(_ng_task_index=0)]):
            pass
    finally:
        await training.close()


async def ask_the_bridge(world: World, **headers: str) -> str:
    async with new_client(world) as client:
        status, body = await client.run(world.row(), **headers)
        assert status == 500, body
        return json.dumps(body)


@pytest.mark.parametrize("stream", streams.stream_configs())
async def test_whoever_waits_for_rollouts_is_told_that_a_stream_was_deleted(
    stream: str, own_world: World, run: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hold = asyncio.Event()

    async def wait(_body: Body) -> Body:
        await hold.wait()
        return say("done")

    own_world.engine.turn = wait
    asking = [
        asyncio.create_task(collect(own_world, tmp_path)),
        asyncio.create_task(train(own_world, run)),
        asyncio.create_task(ask_the_bridge(own_world)),
        asyncio.create_task(ask_the_bridge(own_world, **{"Idempotency-Key": "mine"})),
    ]
    await until(lambda: len(own_world.engine.requests) == len(asking))
    await own_world.js.api(f"STREAM.DELETE.{stream}")
    collected, trained, *answered = await asyncio.gather(*asking, return_exceptions=True)
    hold.set()
    sentence = f"the stream {stream} was deleted from the NATS server; a cluster that starts makes it again"
    assert isinstance(collected, BusError)
    assert str(collected) == f"{sentence}; run the same command again to resume"
    assert isinstance(trained, BusError)
    assert str(trained) == f"{sentence}; request the same task indices again to resume"
    assert all(sentence in str(answer) for answer in answered)
    assert not [record for record in caplog.records if record.exc_info or record.levelno >= logging.ERROR]


async def test_a_bridge_rolls_out_again_when_a_cluster_has_made_the_stream_again(own_world: World) -> None:
    hold = asyncio.Event()

    async def wait(_body: Body) -> Body:
        await hold.wait()
        return say("done")

    own_world.engine.turn = wait
    asking = asyncio.create_task(ask_the_bridge(own_world))
    await until(lambda: own_world.engine.requests)
    await own_world.js.api("STREAM.DELETE.TASKS")
    assert "TASKS was deleted" in await asking
    await streams.ensure(own_world.js, [])
    hold.set()
    async with new_client(own_world) as client:
        status, body = await until_answer(lambda: client.run(own_world.row()), lambda answer: answer[0] == 200)
        assert (status, body["reward"]) == (200, 1.0)
