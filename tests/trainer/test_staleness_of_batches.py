"""Rollouts of all lengths are trained on, however many updates they take, and none is thrown away."""

import asyncio
import random
from collections import Counter as Counts
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

import gymq
from gymq.bus import Bus
from gymq.testing import function_call, reply
from gymq.trainer import TrainingRun
from tests.bridge.environments import Counter
from tests.bridge.world import World
from tests.runtime.test_weights import Echo, Replicas, safetensors

SHORT, LONG = 1, 12  # calls
TASKS_OF_EACH, SAMPLES, GROUPS, STALENESS = 20, 4, 4, 2
CALL_S = 0.01


class Caller(Echo):
    """Calls a tool until it was called as often as the row asks for; each reply takes a while."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.num_calls = 0

    async def respond(self, request: gymq.ModelRequest) -> dict[str, Any]:
        self.num_calls += 1
        await asyncio.sleep(CALL_S)
        said = request.params["input"]
        so_far = sum(item.get("type") == "function_call_output" for item in said) + 1
        is_last = so_far == int(said[0]["content"])
        return reply("done") if is_last else reply(function_call("add", {"amount": 1}, f"call_{so_far}"))


@pytest.fixture
async def world(shared_url: str, bus: Bus) -> AsyncIterator[World]:
    """An agent and an environment for a policy that takes weights."""
    async with AsyncExitStack() as stack:
        made = World(shared_url, bus, stack)
        await made.start()
        await made.add_resources("counter", Counter())
        await made.add_agent("asker", "counter", max_steps=LONG + 1)
        yield made


@pytest.fixture
async def policy(world: World) -> AsyncIterator[Caller]:
    replicas = Replicas(world.url, world.name("policy"))
    yield await replicas.start("only", Caller(world.name("policy")))
    await replicas.kill("only")


async def test_long_rollouts_are_trained_on_as_often_as_they_are_drawn(
    world: World, training: TrainingRun, policy: Caller
) -> None:
    stats = pytest.importorskip("scipy.stats")
    drawn = [SHORT, LONG] * TASKS_OF_EACH
    random.Random(1).shuffle(drawn)
    batches = training.train_batches(
        [world.row(str(calls), expected=calls - 1) for calls in drawn],
        groups=GROUPS,
        num_samples=SAMPLES,
        ahead=STALENESS,
        epochs=1,
        on_untrainable="allow",
    )
    trained: list[int] = []
    lags: Counts[int] = Counts()
    await training.update_weights("0", weights=safetensors(b"0"))
    async for batch in batches:
        for group in batch.groups:
            assert group.rewards == [1.0] * SAMPLES
            trained += [int(group.example["responses_create_params"]["input"][0]["content"])] * SAMPLES
            lags.update(batch.step - int(sample.policy_versions[0]) for sample in group.samples)
        await training.update_weights(str(batch.step + 1), weights=safetensors(b"0"))
        if len(trained) == len(drawn) * SAMPLES // 2:
            assert stats.ks_2samp(trained[::SAMPLES], drawn).pvalue > 0.05
    assert sorted(trained) == sorted(drawn * SAMPLES)
    assert policy.num_calls == sum(trained)  # none was thrown away
    assert 0 < max(lags) <= STALENESS
