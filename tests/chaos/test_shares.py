"""Runs that are collected at the same time share the workers by weight, and an urgent run does not wait for others."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from gymq.bus.queue.steering import read_steering
from gymq.protocol.instances import Instance
from gymq.protocol.messages import Priority
from gymq.runs.collection.collection import Collection
from tests.support.waiting import DEADLINE_S, until

from .rows import row
from .running_cluster import WORKERS, RunningCluster, running
from .scenario import agent_spec

pytestmark = pytest.mark.asyncio(loop_scope="module")

SLOTS = 16


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningCluster]:
    plain = Instance("plain", "resources", str(WORKERS / "plain.py"))
    async with running(
        tmp_path_factory.mktemp("shares"), [plain, agent_spec("solver", "plain", max_concurrency=SLOTS)]
    ) as cluster:
        yield cluster


async def until_done(collection: Collection, count: int) -> None:
    await until(lambda: collection.progress.done >= count)


async def test_two_runs_share_the_workers_by_weight(cluster: RunningCluster) -> None:
    rows = [row("solver", str(number), latencies_s=[0.1]) for number in range(600)]
    heavy, light = cluster.collection("heavy", rows, share=2.0), cluster.collection("light", rows)
    collecting = [asyncio.create_task(collection.run()) for collection in (heavy, light)]
    await until_done(heavy, 60)
    await until_done(light, 20)
    before = heavy.progress.done, light.progress.done
    await until_done(heavy, before[0] + 300)
    of_light = light.progress.done - before[1]
    assert 300 / 3 < of_light < 300 / 1.5  # in theory half as many
    await asyncio.gather(*collecting)
    assert heavy.progress.done == light.progress.done == 600


async def test_an_urgent_run_starts_while_another_fills_all_workers(cluster: RunningCluster) -> None:
    rows = [row("solver", str(number), latencies_s=[1.0]) for number in range(30 * SLOTS)]
    long = cluster.collection("long", rows)
    collecting = asyncio.create_task(long.run())
    await until_done(long, 2 * SLOTS)
    urgent = cluster.collection("urgent", rows[:4], priority=Priority.URGENT)
    before = long.progress.done
    await asyncio.wait_for(urgent.run(), DEADLINE_S)
    assert urgent.progress.done == 4
    steering = await read_steering(cluster.bus, urgent.progress.run)
    assert steering is not None
    assert steering.priority is Priority.URGENT  # kept with the run
    # It took a few rounds of the workers; in order of arrival it would have been all 30.
    assert long.progress.done - before <= 12 * SLOTS
    assert not collecting.done()
    collecting.cancel()
    await asyncio.wait([collecting])
