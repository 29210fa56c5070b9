"""Versions of engines that a trainer gives their weights itself: announced, they work as those that are pushed."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from gymq.workers.models.vllm_model.worker import VLLMModel

from gymq.bus import Bus
from gymq.bus.weights import announce, push
from gymq.data.materialise import MaterialiseOptions
from gymq.errors import UsageError
from gymq.runs.collection.collection import Collection
from gymq.runs.collection.options import CollectOptions
from gymq.runs.collection.plan import RunPlan
from gymq.trainer import TrainingRun
from gymq.trainer.groups import Sample
from tests.bus.weights.test_weights import safetensors
from tests.support.engine import Body, Engine, say
from tests.support.environments import Counter, Grader
from tests.support.waiting import until
from tests.support.world import World

from .conftest import Examples


async def samples_of(training: TrainingRun, rows: list[dict[str, object]], **options: object) -> list[Sample]:
    batch = training.run_rollouts(rows, in_order=True, **options)
    return [sample async for group in batch for sample in group.samples]


class Turns:
    """A rollout of two calls; the second one is answered when the test says so."""

    def __init__(self, world: World) -> None:
        self.asked = asyncio.Event()
        self.go = asyncio.Event()
        world.engine.turn = self._turn

    async def _turn(self, body: Body) -> Body:
        if len(body["messages"]) == 1:
            return say(None, ("add", {"amount": 1}))
        self.asked.set()
        await self.go.wait()
        return say("done")


@pytest.fixture
async def counting(world: World) -> dict[str, Any]:
    await world.add_resources("counter", Counter())
    await world.add_agent("counting", "counter")
    return world.row(agent="counting", expected=1, _ng_task_index=0)


async def test_a_limit_without_versions_is_refused_in_one_sentence(training: TrainingRun, examples: Examples) -> None:
    with pytest.raises(UsageError, match=r"nothing tells which policy .* answers with; announce each"):
        await samples_of(training, examples(2), max_staleness=1)
    assert len(await samples_of(training, examples(1))) == 1
    for on_stale in ("mask", "discard"):
        with pytest.raises(UsageError, match="nothing tells which policy"):
            await anext(training.train_batches(examples(2), groups=1, num_samples=1, on_stale=on_stale))


async def test_a_limit_for_a_model_that_is_not_there_is_refused(
    world: World, run: str, examples: Examples, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_answer(*_args: Any, **_options: Any) -> bool:
        return False

    monkeypatch.setattr("gymq.bus.weights.known.is_running", no_answer)
    monkeypatch.setattr("gymq.bus.weights.known.LOOK_S", 0.01)
    training = await TrainingRun.connect(world.url, run, model="another")
    with pytest.raises(UsageError, match="no model named 'another' is running"):
        await samples_of(training, examples(1), max_staleness=1)
    await training.close()


async def test_a_collection_with_a_limit_is_refused_until_a_version_is_announced(
    world: World, bus: Bus, tmp_path: Path
) -> None:
    data, output = tmp_path / "rows.jsonl", tmp_path / "rollouts.jsonl"
    data.write_text(json.dumps(world.row("say 0")) + "\n")
    options = CollectOptions(
        input=data,
        output=output,
        materialise=MaterialiseOptions(agent_name=world.name("asker")),
        max_staleness=0,
    )
    with pytest.raises(UsageError, match="gymq weights announce VERSION --model policy_"):
        await Collection(bus, RunPlan(options)).run()
    assert (await announce(bus, world.name("policy"), "v0")).is_complete
    assert (await Collection(bus, RunPlan(options)).run()).done == 1
    assert json.loads(output.read_text())["policy_version"] == "v0"


async def test_what_the_engines_answer_carries_the_version_that_is_announced(
    training: TrainingRun, examples: Examples
) -> None:
    announced = await training.announce("step-0")
    assert len(announced.confirmed) == 1
    assert training.policy_version == "step-0"
    (sample,) = await samples_of(training, examples(1))
    record = sample.record()
    assert sample.policy_versions == ["step-0"]
    assert {version for version in record.policy_versions or [] if version} == {"step-0"}
    for version in ("step-1", "step-2"):
        await training.announce(version)
    (again,) = await samples_of(training, examples(1), max_staleness=1)  # in place of the one that is stored
    assert again.policy_versions == ["step-2"]


async def test_a_worker_that_starts_after_an_announcement_answers_with_it(
    training: TrainingRun, world: World, bus: Bus, examples: Examples
) -> None:
    await training.announce("step-0")
    (first,) = world.models
    await first.bus.close()  # it dies between the announcement and the call
    await world.add_model()
    (sample,) = await samples_of(training, examples(1), max_staleness=0)
    assert sample.policy_versions == ["step-0"]


async def test_rollouts_that_run_start_over_with_restart(
    training: TrainingRun, world: World, counting: dict[str, Any]
) -> None:
    await training.announce("step-0")
    turns = Turns(world)
    running = asyncio.create_task(samples_of(training, [counting]))
    await turns.asked.wait()
    await training.announce("step-1", in_flight="restart")
    turns.go.set()
    (sample,) = await running
    assert sample.policy_versions == ["step-1"]


async def test_rollouts_that_run_finish_before_the_engines_are_given_weights(
    training: TrainingRun, world: World, counting: dict[str, Any]
) -> None:
    await training.announce("step-0")
    turns = Turns(world)
    running = asyncio.create_task(samples_of(training, [counting]))
    await turns.asked.wait()
    loaded: list[bool] = []

    async def load() -> None:
        loaded.append(bool([outcome async for outcome in training.stored()]))

    announcing = asyncio.create_task(training.announce("step-1", in_flight="finish", load=load))
    await until(lambda: any(agent.stats()["begun"]["is_held"] for agent in world.agents))
    assert not loaded
    turns.go.set()
    await announcing
    (sample,) = await running
    assert sample.policy_versions == ["step-0"]
    assert loaded == [True]


async def test_finish_without_a_time_for_the_weights_is_refused(training: TrainingRun) -> None:
    with pytest.raises(UsageError, match="`load` gives them when rollouts have ended"):
        await training.announce("step-1", in_flight="finish")


async def test_weights_that_cannot_be_loaded_are_not_announced(training: TrainingRun, bus: Bus) -> None:
    async def load() -> None:
        raise ValueError("out of memory")

    with pytest.raises(ValueError, match="out of memory"):
        await training.announce("step-1", load=load, in_flight="restart")
    assert training.policy_version is None


async def test_a_rollout_that_continues_has_both_versions(
    training: TrainingRun, world: World, counting: dict[str, Any]
) -> None:
    await training.announce("step-0")
    turns = Turns(world)
    running = asyncio.create_task(samples_of(training, [counting]))
    await turns.asked.wait()
    await training.announce("step-1")
    turns.go.set()
    (sample,) = await running
    assert sample.policy_versions == ["step-0", "step-1"]
    versions = [version for one in sample.records() for version in one.policy_versions or []]
    assert "step-0" in versions  # the tokens of the call that was answered before
    assert "step-1" not in versions  # those of the call in flight may be of either


async def test_engines_that_are_announced_answer_from_then_on_also_after_the_worker_died(
    training: TrainingRun, world: World, examples: Examples
) -> None:
    async with Engine() as second:
        with pytest.raises(UsageError, match="expected a URL such as"):
            await training.announce("step-0", engines=["second"])
        await training.announce("step-0", engines=[second.url])
        await samples_of(training, examples(2))
        await training.announce("step-1")
        await world.models[0].bus.close()
        await world.add_model()
        await samples_of(training, examples(2, first=2))
        assert (len(second.requests), len(world.engine.requests)) == (4, 0)


async def test_weights_are_not_pushed_to_engines_of_someone_else(training: TrainingRun, world: World, bus: Bus) -> None:
    pushed = await push(bus, world.name("policy"), "v1", weights=safetensors(b"one"))
    (reason,) = pushed.missing.values()
    assert reason.endswith("are given weights where they run; then `gymq weights announce` tells the version")
    assert pushed.taken_back
    await announce(bus, world.name("policy"), "v1")


async def test_a_call_that_an_engine_ends_for_an_update_is_asked_again_with_the_new_weights(
    training: TrainingRun, world: World, examples: Examples
) -> None:
    await training.announce("step-0")
    asked = 0

    async def turn(_body: Body) -> Body:
        nonlocal asked
        asked += 1
        if asked == 1:
            await training.announce("step-1")  # while the engine is paused
            return {**say("a part"), "finish_reason": "abort"}
        return say("done")

    world.engine.turn = turn
    (sample,) = await samples_of(training, examples(1), max_staleness=0)
    assert sample.policy_versions == ["step-1"]
    assert {version for version in sample.record().policy_versions or [] if version} == {"step-1"}
    assert asked == 2


@dataclass
class Pool:
    """A run on a world whose model asks two engines that name their weights."""

    world: World
    training: TrainingRun
    engines: list[Engine]
    model: VLLMModel

    async def name(self, *versions: str) -> None:
        """Have each engine name a version, and wait until the worker knows."""
        for engine, version in zip(self.engines, versions, strict=True):
            engine.weight_version = version
        await until(lambda: list(self.model.told_versions()) == sorted(set(versions)))


@pytest.fixture
async def pool(shared_url: str, bus: Bus, run: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Pool]:
    for pause in ("LOOK_EVERY_S", "FOLLOW_EVERY_S"):
        monkeypatch.setattr(f"gymq.workers.models.vllm_model.weight_versions.{pause}", 0.02)
    monkeypatch.setattr("gymq.trainer.told_versions.EVERY_S", 0.0)
    async with AsyncExitStack() as stack:
        world = World(shared_url, bus, stack)
        await world.start()
        engines = [await stack.enter_async_context(Engine()) for _ in range(2)]
        for engine in engines:
            engine.weight_version = "9"
        options = {
            "base_url": [engine.url for engine in engines],
            "api_key": "sk-a-key-for-tests",
            "model": "served",
            "return_token_id_information": True,
            "uses_reasoning_parser": True,
        }
        model = VLLMModel(options, name="policy")
        await world.add_model(model=model)
        training = await TrainingRun.connect(world.url, run, model=world.name("policy"))
        stack.push_async_callback(training.close)
        await world.add_resources("grader", Grader())
        await world.add_resources("counter", Counter())
        await world.add_agent("asker", "grader")
        await world.add_agent("counting", "counter")
        yield Pool(world, training, engines, model)


def rows_of(pool: Pool, count: int) -> list[dict[str, object]]:
    return [pool.world.row(f"say {number}", _ng_task_index=number) for number in range(count)]


async def test_versions_that_two_engines_name_become_updates(pool: Pool) -> None:
    rows = rows_of(pool, 8)
    assert [one.policy_versions for one in await samples_of(pool.training, rows, max_staleness=0)] == [["9"]] * 8
    assert all(engine.requests for engine in pool.engines)
    await pool.name("10", "9")  # one gets its weights before the other
    more = await samples_of(pool.training, [{**row, "_ng_task_index": 10 + at} for at, row in enumerate(rows)])
    assert {tuple(one.policy_versions) for one in more} == {("9",), ("10",)}
    await pool.name("10", "10")
    again = await samples_of(pool.training, rows, max_staleness=0)
    assert [one.policy_versions for one in again] == [["10"]] * 8
    assert pool.training.policy_version is None  # the program has announced nothing


async def test_a_rollout_whose_engine_changes_in_the_middle_tells_the_version_of_each_call(pool: Pool) -> None:
    async def turn(body: Body) -> Body:
        if len(body["messages"]) > 1:
            return say("done")
        await pool.name("10", "10")
        return say(None, ("add", {"amount": 1}))

    for engine in pool.engines:
        engine.turn = turn
    row = pool.world.row(agent="counting", expected=1, _ng_task_index=0)
    (sample,) = await samples_of(pool.training, [row])
    assert sample.policy_versions == ["9", "10"]
    versions = [version for one in sample.records() for version in one.policy_versions or []]
    assert "10" in versions  # the second call; the first one was answered while the engine changed
    assert "9" not in versions


async def test_a_trainer_that_goes_back_gives_its_engines_older_weights_as_a_newer_update(pool: Pool) -> None:
    for version in ("9", "10", "9"):
        await pool.name(version, version)
        (sample,) = await samples_of(pool.training, rows_of(pool, 1), max_staleness=0)
        assert sample.policy_versions == [version]
    assert len([outcome async for outcome in pool.training.stored()]) == 2  # the first one is of that version again
