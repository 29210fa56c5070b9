"""Groups that teach nothing are replaced, tasks end when they are known, and difficulties outlast a trainer."""

import asyncio
from typing import Any

import pytest

import gymq
from gymq.stats.sequential import pass_rate_interval
from gymq.trainer import TrainerError, TrainingRun
from gymq.trainer.groups import Group
from gymq.trainer.sampling import Difficulties, rollouts_until_known, varied_groups
from tests.bridge.engine import Body, say
from tests.bridge.world import World

from .conftest import Alternating

SIZE = 4


def rows_of(world: World, *fields: dict[str, Any]) -> list[dict[str, Any]]:
    return [world.row(f"say {at}", agent="player", _ng_task_index=at, **row) for at, row in enumerate(fields)]


async def collected(groups: Any) -> list[Group]:
    return [group async for group in groups]


async def test_groups_without_variance_are_replaced_until_there_are_enough(
    world: World, training: TrainingRun, alternating: Alternating
) -> None:
    dull, varied = {"reward": 0.0}, {"varies": True}
    rows = rows_of(world, dull, varied, {"reward": 1.0}, varied, varied, varied)
    groups = await collected(varied_groups(training, iter(rows), 2, num_samples=SIZE))
    assert sorted(group.task_index for group in groups) == [1, 3]
    assert all(len(set(group.rewards)) == 2 for group in groups)
    assert len(world.engine.requests) == 4 * SIZE  # those after the third were not needed


async def test_a_group_that_does_not_vary_at_first_costs_no_more_rollouts_and_is_counted(
    world: World, training: TrainingRun, alternating: Alternating
) -> None:
    rows = rows_of(world, {"reward": 0.0}, {"varies": True}, {"reward": 1.0})
    known = Difficulties()
    (group,) = await collected(varied_groups(training, rows, 1, known=known, first=2, num_samples=SIZE))
    assert (group.task_index, len(group.samples)) == (1, SIZE)
    assert len(world.engine.requests) == known.num_rollouts == 2 + SIZE
    assert [known.of(row).num_rollouts for row in rows] == [2, SIZE, 0]
    known.add(group)  # again, as a trainer does that restarts
    assert known.num_rollouts == 2 + SIZE
    with pytest.raises(TrainerError, match=r"first is 5; whether 4 samples vary is seen after 2 to 4 of them"):
        await collected(varied_groups(training, rows, 1, first=5, num_samples=SIZE))


async def test_a_trainer_that_restarts_gets_the_same_groups_without_a_rollout(
    world: World, training: TrainingRun, alternating: Alternating, run: str
) -> None:
    rows = rows_of(world, {"reward": 0.0}, {"varies": True}, {"varies": True})
    before = await collected(varied_groups(training, rows, 2, num_samples=SIZE))
    num_asked = len(world.engine.requests)
    again = await TrainingRun.connect(world.url, run, model=world.name("policy"))
    try:
        after = await collected(varied_groups(again, rows, 2, num_samples=SIZE))
    finally:
        await again.close()
    assert sorted(group.task_index for group in after) == sorted(group.task_index for group in before) == [1, 2]
    assert len(world.engine.requests) == num_asked


async def test_examples_that_end_give_fewer_groups(
    world: World, training: TrainingRun, alternating: Alternating
) -> None:
    rows = rows_of(world, {"reward": 0.0}, {"reward": 0.0})
    assert await collected(varied_groups(training, rows, 2, num_samples=SIZE)) == []


async def test_a_task_ends_when_its_interval_is_narrow_enough(
    world: World, training: TrainingRun, alternating: Alternating
) -> None:
    rows = rows_of(world, {"reward": 1.0}, {"varies": True})
    found = await collected(rollouts_until_known(training, rows, narrower_than=0.4, at_once=SIZE, most=40))
    sizes = {group.task_index: len(group.samples) for group in found}
    assert sizes[0] < sizes[1] < 40
    for group in found:
        passed = round(sum(group.rewards))
        num = len(group.rewards)
        assert pass_rate_interval(passed, num - passed).width <= 0.4
    assert pass_rate_interval(0, sizes[0] - SIZE).width > 0.4
    assert len(world.engine.requests) == sum(sizes.values())


async def test_a_task_ends_at_the_most_rollouts_that_it_may_have(
    world: World, training: TrainingRun, alternating: Alternating
) -> None:
    rows = rows_of(world, {"varies": True})
    (group,) = await collected(rollouts_until_known(training, rows, narrower_than=0.01, at_once=SIZE, most=6))
    assert len(group.samples) == 6
    with pytest.raises(TrainerError, match=r"at_once=8, most=4: .* at_once from 1 to most"):
        await collected(rollouts_until_known(training, rows, narrower_than=0.5, most=4))


async def test_difficulties_are_counted_across_steps_and_outlast_the_trainer(
    world: World, training: TrainingRun, alternating: Alternating, run: str
) -> None:
    rows = rows_of(world, {"reward": 0.0}, {"reward": 1.0}, {"varies": True})
    known = Difficulties()
    for step in range(2):
        numbered = [{**row, "_ng_task_index": step * 10 + at} for at, row in enumerate(rows)]
        async for group in training.run_rollouts(numbered, num_samples=SIZE):
            known.add(group)
    again = await TrainingRun.connect(world.url, run, model=world.name("policy"))
    try:
        stored = await Difficulties.of_run(again)
        first = await Difficulties.of_run(again, range(10))
    finally:
        await again.close()
    assert (known.num_rollouts, first.num_rollouts) == (2 * 3 * SIZE, 3 * SIZE)
    for counted in (known, stored):
        counts = [(counted.of(row).passed, counted.of(row).failed) for row in rows]
        assert counts[:2] == [(0, 2 * SIZE), (2 * SIZE, 0)]
        assert sum(counts[2]) == 2 * SIZE
        assert min(counts[2]) > 0
        assert counted.of(rows[0]).interval.low == 0.0
        unknown = world.row("say 9", agent="player", _ng_task_index=9)
        assert (counted.of(unknown).passed, counted.of(unknown).failed) == (0, 0)
        assert counted.most_informative([*rows, unknown], 2) == [rows[2], unknown]


async def test_difficulties_of_graded_rewards(world: World, training: TrainingRun, alternating: Alternating) -> None:
    alike, spread, never = {"rewards": [-0.3]}, {"rewards": [-0.9, -0.1]}, {"rewards": [-1.0]}
    rows = rows_of(world, alike, spread, never)
    known = Difficulties(pass_threshold=-0.5)
    async for group in training.run_rollouts(rows, num_samples=8):
        known.add(group)
    assert known.most_informative(rows, 1) == [rows[1]]
    assert [known.of(row).passed for row in rows] == [8, 4, 0]
    assert [known.of(rows[1]).quantile(share) for share in (0.0, 0.5, 0.51, 1.0)] == [-0.9, -0.9, -0.1, -0.1]
    assert known.of(rows[1]).mean_interval.low < -0.5 < known.of(rows[1]).mean_interval.high


async def test_a_mean_reward_is_known_when_its_interval_is_narrow_enough(
    world: World, training: TrainingRun, alternating: Alternating
) -> None:
    rows = rows_of(world, {"reward": 0.5}, {"rewards": [0.0, 0.3, 0.7, 1.0]})
    found = rollouts_until_known(training, rows, narrower_than=0.4, at_once=SIZE, most=40, pass_threshold=None)
    sizes = {group.task_index: len(group.samples) for group in await collected(found)}
    assert 4 < sizes[0] < sizes[1] < 40


async def test_a_verdict_that_is_a_failure_counts_no_more_after_a_restart_than_before(
    world: World, training: TrainingRun, alternating: Alternating, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(self: Alternating, request: gymq.VerifyRequest[gymq.Row]) -> gymq.Verdict:
        return gymq.Verdict(0.0, _ng_failure_class="verifier_failed")

    monkeypatch.setattr(Alternating, "verify", fail)
    known = Difficulties()
    async for group in training.run_rollouts(rows_of(world, {})):
        known.add(group)
    assert known.num_rollouts == (await Difficulties.of_run(training)).num_rollouts == 0


async def test_leaving_the_loop_asks_for_no_more_groups(
    world: World, training: TrainingRun, alternating: Alternating
) -> None:
    hold = asyncio.Event()

    async def turn(body: Body) -> Body:
        if "say 1" in str(body["messages"]):
            await hold.wait()
        return say("done")

    world.engine.turn = turn
    rows = rows_of(world, {"varies": True}, {"varies": True}, {"varies": True})
    groups = varied_groups(training, rows, 2, num_samples=2)
    async for group in groups:
        assert group.task_index == 0
        break
    await groups.aclose()
    hold.set()
    assert not any("say 2" in str(body["messages"]) for body in world.engine.requests)


async def test_a_surplus_does_not_cancel_the_rest_of_a_group_that_varies(
    world: World, training: TrainingRun, alternating: Alternating
) -> None:
    rows = rows_of(world, {"varies": True})
    (group,) = await collected(varied_groups(training, rows, 1, first=2, num_samples=6, num_surplus=2))
    assert group.is_complete


@pytest.mark.parametrize("name", ["num_surplus", "straggler_s"])
async def test_a_task_that_may_need_more_rollouts_is_not_cut(training: TrainingRun, name: str) -> None:
    with pytest.raises(TrainerError, match=f"{name} cannot be used here"):
        await collected(rollouts_until_known(training, [], narrower_than=0.1, **{name: 2}))
