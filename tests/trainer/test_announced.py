"""Versions of engines that a trainer gives their weights itself: announced, they work as those that are pushed."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from gymq.bus import Bus
from gymq.bus.weights import PushError, announce, push
from gymq.cli.actions.weights import announce_to_cluster
from gymq.data.materialise import MaterialiseOptions
from gymq.runs.collection.collection import Collection
from gymq.runs.collection.options import CollectError, CollectOptions
from gymq.trainer import TrainerError, TrainingRun
from gymq.trainer.groups import Sample
from tests.bridge.engine import Body, say
from tests.bridge.environments import Counter
from tests.bridge.world import World
from tests.runtime.test_weights import safetensors
from tests.support.waiting import until

from .conftest import Examples


async def samples_of(training: TrainingRun, rows: list[dict[str, object]], **options: object) -> list[Sample]:
    batch = training.run_rollouts(rows, in_order=True, **options)  # type: ignore[arg-type]
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
    with pytest.raises(TrainerError, match=r"nothing tells which policy .* answers with; announce each"):
        await samples_of(training, examples(2), max_staleness=1)
    assert len(await samples_of(training, examples(1))) == 1
    for on_stale in ("mask", "discard"):
        with pytest.raises(TrainerError, match="nothing tells which policy"):
            await anext(training.train_batches(examples(2), groups=1, num_samples=1, on_stale=on_stale))


async def test_a_limit_for_a_model_that_is_not_there_is_refused(
    world: World, run: str, examples: Examples, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_answer(*_args: Any, **_options: Any) -> bool:
        return False

    monkeypatch.setattr("gymq.bus.weights.known.is_running", no_answer)
    training = await TrainingRun.connect(world.url, run, model="another")
    with pytest.raises(TrainerError, match="no model named 'another' is running"):
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
    with pytest.raises(CollectError, match="gymq weights announce VERSION --model policy_"):
        await Collection(bus, options).run()
    assert await announce_to_cluster(world.name("policy"), "v0", "continue", 30.0, world.url) == 0
    assert (await Collection(bus, options).run()).done == 1
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
    with pytest.raises(PushError, match="`load` gives them when rollouts have ended"):
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


async def test_weights_are_not_pushed_to_engines_of_someone_else(training: TrainingRun, world: World, bus: Bus) -> None:
    pushed = await push(bus, world.name("policy"), "v1", weights=safetensors(b"one"))
    (reason,) = pushed.missing.values()
    assert reason.endswith("are given weights where they run; then `gymq weights announce` tells the version")
    assert pushed.taken_back
    await announce(bus, world.name("policy"), "v1")
