"""Runs that are collected at the same time share the workers by weight, and an urgent run does not wait for others."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from gymq.collect import Collection
from gymq.host import InstanceSpec

from .lab import WORKERS, Lab, running
from .rows import row
from .scenario import agent_spec

pytestmark = pytest.mark.asyncio(loop_scope="module")

SLOTS = 16


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lab(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Lab]:
    plain = InstanceSpec("plain", "resources", str(WORKERS / "plain.py"))
    async with running(
        tmp_path_factory.mktemp("shares"), [plain, agent_spec("solver", "plain", max_concurrency=SLOTS)]
    ) as lab:
        yield lab


async def until_done(collection: Collection, count: int) -> None:
    async with asyncio.timeout(120):
        while collection.progress.done < count:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_two_runs_share_the_workers_by_weight(lab: Lab) -> None:
    rows = [row("solver", str(number), latencies_s=[0.1]) for number in range(600)]
    heavy, light = lab.collection("heavy", rows, window=3 * SLOTS), lab.collection("light", rows, window=SLOTS)
    collecting = [asyncio.create_task(collection.run()) for collection in (heavy, light)]
    await until_done(heavy, 60)
    await until_done(light, 20)
    before = heavy.progress.done, light.progress.done
    await until_done(heavy, before[0] + 300)
    of_light = light.progress.done - before[1]
    assert 300 / 6 < of_light < 300 / 1.5  # in theory a third
    await asyncio.gather(*collecting)
    assert heavy.progress.done == light.progress.done == 600


async def test_an_urgent_run_starts_while_another_fills_all_workers(lab: Lab) -> None:
    rows = [row("solver", str(number), latencies_s=[1.0]) for number in range(30 * SLOTS)]
    long = lab.collection("long", rows)
    collecting = asyncio.create_task(long.run())
    await until_done(long, 2 * SLOTS)
    urgent = lab.collection("urgent", rows[:4], urgent=True)
    before = long.progress.done
    await asyncio.wait_for(urgent.run(), 120)
    assert urgent.progress.done == 4
    # It took a few rounds of the workers; in order of arrival it would have been all 30.
    assert long.progress.done - before <= 12 * SLOTS
    assert not collecting.done()
    collecting.cancel()
    await asyncio.wait([collecting])
