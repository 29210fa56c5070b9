"""Tasks end when they are known, and difficulties outlast a trainer."""

from typing import Any

import pytest

import gymq
from gymq.errors import UsageError
from gymq.ext.sampling import Difficulties, rollouts_until_known
from gymq.ext.sampling.sequential import pass_rate_interval
from gymq.trainer import TrainingRun
from gymq.trainer.groups import Group
from tests.support.world import World
from tests.trainer.conftest import Alternating

SIZE = 4


def rows_of(world: World, *fields: dict[str, Any]) -> list[dict[str, Any]]:
    return [world.row(f"say {at}", agent="player", _ng_task_index=at, **row) for at, row in enumerate(fields)]


async def collected(groups: Any) -> list[Group]:
    return [group async for group in groups]


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
    with pytest.raises(UsageError, match=r"at_once=8, most=4: .* at_once from 1 to most"):
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


@pytest.mark.parametrize("name", ["num_surplus", "straggler_s"])
async def test_a_task_that_may_need_more_rollouts_is_not_cut(training: TrainingRun, name: str) -> None:
    with pytest.raises(UsageError, match=f"{name} cannot be used here"):
        await collected(rollouts_until_known(training, [], narrower_than=0.1, **{name: 2}))
