"""New weights from a training run, and rollouts that are too old for it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any
from unittest.mock import AsyncMock

import pytest

from gymq.bus import Bus, NoAnswer
from gymq.bus.weights.pushing import Pushed, newest
from gymq.errors import UsageError
from gymq.trainer import TrainingRun
from tests.bus.weights.test_weights import Replicas, safetensors
from tests.support.environments import Grader
from tests.support.world import World

from .conftest import Examples


@pytest.fixture
async def world(shared_url: str, bus: Bus) -> AsyncIterator[World]:
    """The agents and verifiers of a policy that takes weights."""
    async with AsyncExitStack() as stack:
        made = World(shared_url, bus, stack)
        await made.start()
        await made.add_resources("grader", Grader())
        await made.add_agent("asker", "grader")
        yield made


@pytest.fixture(autouse=True)
async def replica(world: World) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """A replica of the policy, in place of the engine; call it to kill it."""
    replicas = Replicas(world.url, world.name("policy"))
    worker = f"w{world.tag}"
    await replicas.start(worker)

    async def kill() -> None:
        if worker in replicas.buses:
            await replicas.kill(worker)

    yield kill
    await kill()


async def versions_of(training: TrainingRun, rows: list[dict[str, object]], **options: object) -> list[list[str]]:
    batch = training.run_rollouts(rows, on_untrainable="allow", in_order=True, **options)
    return [sample.policy_versions async for group in batch for sample in group.samples]


async def test_rollouts_tell_the_weights_that_were_pushed(training: TrainingRun, examples: Examples) -> None:
    pushed = await training.update_weights("v1", weights=safetensors(b"one"))
    assert len(pushed.confirmed) == 1
    assert training.policy_version == "v1"
    assert await versions_of(training, examples(2)) == [["v1"], ["v1"]]


async def test_hooks_are_called_before_and_after(training: TrainingRun, bus: Bus) -> None:
    seen: list[tuple[str, str, Any]] = []

    async def before(version: str) -> None:
        seen.append(("before", version, await newest(bus, training.model)))

    async def after(version: str) -> None:
        stored = await newest(bus, training.model)
        seen.append(("after", version, stored and stored.policy_version))

    training.before_update(before)
    training.after_update(after)
    await training.update_weights("v1", weights=safetensors(b"one"))
    assert seen == [("before", "v1", None), ("after", "v1", "v1")]


async def test_a_hook_that_raises_keeps_the_old_weights(training: TrainingRun, bus: Bus) -> None:
    async def refuse(version: str) -> None:
        raise ValueError("not now")

    training.before_update(refuse)
    with pytest.raises(ValueError, match="not now"):
        await training.update_weights("v1", weights=safetensors(b"one"))
    assert await newest(bus, training.model) is None


async def test_weights_that_no_replica_loads_are_an_error(training: TrainingRun) -> None:
    with pytest.raises(UsageError, match="a tensor is missing"):
        await training.update_weights("bad", weights=safetensors(b"one"))
    assert training.policy_version is None


async def test_weights_for_replicas_that_are_gone_are_an_error_that_says_so(
    training: TrainingRun, replica: Callable[[], Awaitable[None]], no_patience: None
) -> None:
    await training.update_weights("v1", weights=safetensors(b"one"))
    await replica()
    with pytest.raises(UsageError, match="none is running; one that starts loads them"):
        await training.update_weights("v2", weights=safetensors(b"two"))
    assert training.policy_version == "v1"


async def test_replicas_that_do_not_answer_are_waited_for_until_the_deadline(
    training: TrainingRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nobody_yet(*_args: object, **_options: object) -> Pushed:
        return Pushed("v1")

    pushes = AsyncMock(side_effect=nobody_yet)
    monkeypatch.setattr("gymq.trainer.policy.push", pushes)
    with pytest.raises(UsageError, match=r"none answered within 0\.2 s"):
        await training.update_weights("v1", weights=safetensors(b"one"), deadline_s=0.2)
    assert pushes.await_count > 1


async def test_what_becomes_too_old_before_it_is_given_out_is_no_sample(
    training: TrainingRun, examples: Examples
) -> None:
    await training.update_weights("v1", weights=safetensors(b"v1"))
    batch = training.run_rollouts(examples(1), on_untrainable="allow", max_staleness=1)
    assert await versions_of(training, examples(1)) == [["v1"]]  # and so the batch before it has its group
    for version in ("v2", "v3"):
        await training.update_weights(version, weights=safetensors(version.encode()))
    (group,) = [group async for group in batch]
    assert group.samples == []
    (failure,) = group.failures
    assert (failure.failure_class, failure.message) == (
        "stale",
        "begun by the policy 'v1'; more than 1 updates came since",
    )


async def test_a_group_outlives_a_server_that_is_away_when_its_staleness_is_checked(
    training: TrainingRun, bus: Bus, examples: Examples, monkeypatch: pytest.MonkeyPatch
) -> None:
    await training.update_weights("v1", weights=safetensors(b"v1"))
    checks = AsyncMock(side_effect=[NoAnswer("away"), await newest(bus, training.model)])
    monkeypatch.setattr("gymq.trainer.policy.newest", checks)
    assert await versions_of(training, examples(1), max_staleness=1) == [["v1"]]
    assert checks.await_count == 2


async def test_what_was_begun_before_the_first_push_is_behind_by_all_pushes(
    training: TrainingRun, examples: Examples
) -> None:
    await versions_of(training, examples(1))
    await training.update_weights("v1", weights=safetensors(b"v1"))
    assert await versions_of(training, examples(1), max_staleness=1) == [[]]
    assert await versions_of(training, examples(1), max_staleness=0) == [["v1"]]  # made in its place


async def test_a_group_that_is_requested_again_has_other_samples_in_place_of_stale_ones(
    training: TrainingRun, examples: Examples
) -> None:
    for version in ("v1", "v2", "v3"):
        await training.update_weights(version, weights=safetensors(version.encode()))
        if version == "v1":
            await versions_of(training, examples(1), num_samples=2)
    for _ in range(2):  # the second time all of it comes from the store
        assert await versions_of(training, examples(1), num_samples=2, max_staleness=1) == [["v3"]] * 2
    assert [outcome.rollout_index async for outcome in training.stored()] == [0, 1, 2, 3]
    for version in ("v4", "v5"):
        await training.update_weights(version, weights=safetensors(version.encode()))
    assert await versions_of(training, examples(1), num_samples=2, max_staleness=1) == [["v5"]] * 2
    assert await versions_of(training, examples(1), num_samples=2) == [["v1"]] * 2
