"""Batches count the difficulties of their rows, and are chosen by them."""

from typing import Any

from gymq.ext.sampling import Difficulties
from gymq.trainer import TrainingRun
from tests.support.world import World
from tests.trainer.conftest import Alternating, Examples
from tests.trainer.test_batches import asked, indices


async def test_a_group_that_does_not_vary_at_first_costs_no_more_rollouts_and_is_counted(
    training: TrainingRun, world: World, alternating: Alternating
) -> None:
    rows = [world.row("say 0", agent="player", reward=0.0), world.row("say 1", agent="player", varies=True)]
    known = Difficulties()
    options: dict[str, Any] = {"varied": True, "first": 2, "known": known, "num_surplus": 2}
    (batch,) = [
        one
        async for one in training.train_batches(rows, groups=1, num_samples=6, ahead=0, seed=None, epochs=1, **options)
    ]
    assert indices(batch) == [[1]]
    assert len(batch.groups[0].samples) == 6
    assert [known.of(row).num_rollouts for row in rows] == [2, 6]
    assert asked(world).count("say 0") == 2


async def test_the_row_of_most_use_is_chosen_among_candidates(training: TrainingRun, examples: Examples) -> None:
    known = Difficulties()
    for group in [group async for group in training.run_rollouts(examples(1, first=1000), num_samples=8)]:
        known.add(group)
    easy = {**examples(1, first=1000)[0]}
    batches = training.train_batches(
        [easy, *examples(1)], groups=1, num_samples=2, ahead=0, seed=None, epochs=1, known=known, candidates=2
    )
    assert indices(*[batch async for batch in batches]) == [[1]]
    assert known.num_rollouts == 10


async def test_candidates_of_which_some_are_the_same_row_have_indices_of_their_own(
    training: TrainingRun, examples: Examples
) -> None:
    batches = training.train_batches(examples(1), groups=3, num_samples=1, ahead=0, known=Difficulties(), candidates=2)
    assert len(set(indices(await anext(batches))[0])) == 3
    await batches.aclose()
