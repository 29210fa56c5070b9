"""Rollouts of all lengths are trained on, however many updates they take, and none is thrown away unasked."""

import asyncio
import logging
import random
from collections import Counter as Counts
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from gymq.workers.models.simulated_model.worker import SimulatedModel

import gymq
from gymq.bus import Bus
from gymq.testing import function_call, reply
from gymq.trainer import TrainingBatch, TrainingRun
from tests.bus.weights.test_weights import Echo, Replicas, safetensors
from tests.support.environments import Counter
from tests.support.waiting import until, until_answer
from tests.support.world import World

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


class Held(SimulatedModel):
    """Answers with token ids, to a prompt in `held` only once its event is set."""

    def __init__(self, name: str) -> None:
        super().__init__({"token_ids": True}, name=name)
        self.held: dict[str, asyncio.Event] = {}
        self.asked: list[str] = []

    async def respond(self, request: gymq.ModelRequest) -> dict[str, Any]:
        prompt = request.params["input"][0]["content"]
        self.asked.append(prompt)
        if prompt in self.held:
            await self.held[prompt].wait()
        return await super().respond(request)

    async def load_weights(self, update: gymq.WeightsUpdate) -> None:
        pass


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


@pytest.fixture
async def held(world: World) -> AsyncIterator[Held]:
    replicas = Replicas(world.url, world.name("policy"))
    model = Held(world.name("policy"))
    await model.start()
    yield await replicas.start("only", model)
    await replicas.kill("only")


def indices(batch: TrainingBatch) -> list[int]:
    return [group.task_index for group in batch.groups]


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


async def test_a_rollout_that_waits_in_the_queue_grows_no_older(
    world: World, training: TrainingRun, held: Held
) -> None:
    await world.add_agent("busy", "counter", max_concurrency=1)
    held.held["first"] = asyncio.Event()
    busy = training.run_rollouts([world.row("first", agent="busy", expected=0, _ng_task_index=100)])
    await until(lambda: held.asked == ["first"])
    rows = [world.row("queued", agent="busy", expected=0), *(world.row(str(at), expected=0) for at in range(1, 6))]
    await training.update_weights("0", weights=safetensors(b"0"))
    batches = training.train_batches(rows, groups=1, num_samples=1, ahead=1, seed=None, epochs=1)
    for step in range(3):  # more than it may be behind, were it counted from when it was submitted
        assert indices(await anext(batches)) == [step + 1]
        await training.update_weights(str(step + 1), weights=safetensors(b"0"))
    held.held["first"].set()
    rest = [batch async for batch in batches]
    assert sorted(map(indices, rest)) == [[0], [4], [5]]
    assert max(batch.metrics["lag_max"] for batch in rest) <= 1
    assert [group.rewards async for group in busy] == [[1.0]]


@pytest.mark.parametrize("on_stale", ["train", "mask", "discard"])
async def test_tokens_that_others_made_stale(
    world: World, training: TrainingRun, held: Held, on_stale: str, caplog: pytest.LogCaptureFixture
) -> None:
    await training.update_weights("0", weights=safetensors(b"0"))
    rows = [world.row(str(at), expected=0) for at in range(4)]
    batches = training.train_batches(rows, groups=1, num_samples=2, ahead=1, seed=None, epochs=1, on_stale=on_stale)
    assert indices(await anext(batches)) == [0]
    await until_stored(world)
    for version in ("1", "of another", "of another again"):
        await training.update_weights(version, weights=safetensors(b"0"))
    with caplog.at_level(logging.WARNING, "gymq.trainer"):
        batch = await anext(batches)
    (first, _) = batch.records
    if on_stale == "discard":
        assert indices(batch) == [2]
        assert (batch.metrics["stale_groups"], batch.metrics["lag_max"]) == (1.0, 0.0)
        assert batch.metrics["dropped_tokens"] == batch.metrics["tokens"]
        assert "short rollouts more often than on long ones" in caplog.text
    else:
        assert indices(batch) == [1]
        assert (batch.metrics["stale"], batch.metrics["lag_max"]) == (2.0, 3.0)
        assert not caplog.records
    assert first.is_trained == ([0] * len(first.behind) if on_stale == "mask" else first.record.is_sampled())
    await batches.aclose()


async def test_groups_that_take_too_long_are_discarded_with_one_warning(
    world: World, training: TrainingRun, held: Held, caplog: pytest.LogCaptureFixture
) -> None:
    held.held |= {"0": asyncio.Event(), "1": asyncio.Event()}
    rows = [world.row(str(at), expected=0) for at in range(7)]
    with caplog.at_level(logging.WARNING, "gymq.trainer"):
        batches = training.train_batches(
            rows, groups=1, num_samples=2, ahead=2, seed=None, epochs=1, on_stale="discard"
        )
        trained = [batch async for batch in batches]
    assert [indices(batch) for batch in trained] == [[2], [3], [4], [5], [6]]
    assert sum(batch.metrics["stale_groups"] for batch in trained) == 2
    assert [record.name for record in caplog.records].count("gymq.trainer") == 1
    for event in held.held.values():
        event.set()
    stored = [outcome async for outcome in training.stored() if outcome.task_index < 2]
    assert all(getattr(outcome, "failure_class", None) == "cancelled" for outcome in stored)


async def until_stored(world: World) -> None:
    """Wait until nothing is queued or in flight."""
    await until_answer(world.queued, lambda count: count == 0)
