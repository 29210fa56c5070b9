"""Metrics of the bridge, read the way Prometheus reads them."""

import sys
from typing import Any

import aiohttp
import pytest

from gymq.bus import streams
from gymq.bus.discovery import ServiceListing
from gymq.errors import UsageError
from tests.support.stored import Stored, failure, place, rollout, world
from tests.support.world import World

parser = pytest.importorskip("prometheus_client.parser", reason="pip install 'gymq[observability]'")

__all__ = ["place", "world"]


async def samples(world: World, **headers: str) -> dict[tuple[Any, ...], float]:
    """Every sample by its name and the values of its labels, in the order of their names."""
    async with aiohttp.ClientSession() as session, session.get(f"{world.head}/metrics", headers=headers) as answer:
        assert answer.status == 200
        text = await answer.text()
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in parser.text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_a_run_is_told_with_its_failures_rates_and_tokens(place: Stored, run: str) -> None:
    world = place.world
    await world.start_bridge(metrics=True)
    await place.announce(run)
    usage = {"input_tokens": 10, "output_tokens": 7, "total_tokens": 17}
    response = rollout(run, 0).response | {"usage": usage}
    await place.store(rollout(run, 0, response=response), rollout(run, 0, 1, reward=0.0, response=response))
    await place.store(failure(run, 1, retryable=False))
    await place.profile()
    found = await samples(world)
    assert found["gymq_rollouts_rewarded_total", "asker", run] == 2
    assert found["gymq_attempts_failed_total", "asker", "model_failed", run] == 1
    assert found["gymq_reward_mean", "asker", run] == 0.5
    assert found["gymq_pass_ratio", "asker", "2", run] == 1.0
    assert found["gymq_model_tokens_total", "asker", "output", run] == 14
    assert found["gymq_model_tokens_total", "asker", "input", run] == 20
    assert found[("gymq_outcomes_total",)] >= 3


async def test_queues_and_workers_are_told(world: World, run: str) -> None:
    await streams.ensure_agent(world.js, run)
    stats = {"num_requests": 9, "num_errors": 2, "load": 4, "sessions": 3}
    await ServiceListing(
        world.bus, name=run, worker="w-1", kind="agents", implementation="i", subjects=["-"], stats=stats.copy
    ).start()
    await world.start_bridge(metrics=True)
    found = await samples(world)
    assert found["gymq_tasks_waiting", run, "false"] == 0
    of = (run, "agents", "w-1")
    values = [found[f"gymq_worker_{name}", *of] for name in ("load", "sessions", "requests_total", "errors_total")]
    assert values == [4, 3, 9, 2]


async def test_without_the_setting_there_are_no_metrics(world: World) -> None:
    await world.start_bridge()
    async with aiohttp.ClientSession() as session, session.get(f"{world.head}/metrics") as answer:
        assert answer.status in (404, 405)


async def test_metrics_need_the_key(world: World) -> None:
    key = "a-key-that-is-long-enough"
    await world.start_bridge(metrics=True, api_key=key)
    async with aiohttp.ClientSession() as session, session.get(f"{world.head}/metrics") as answer:
        assert answer.status == 401
    assert await samples(world, Authorization=f"Bearer {key}")


async def test_without_the_package_a_sentence_says_what_to_install(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(UsageError, match=r"pip install 'gymq\[observability\]'"):
        await world.start_bridge(metrics=True)
