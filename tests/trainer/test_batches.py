"""Batches are formed while the trainer trains."""

import asyncio
import json
from collections import Counter as Counts
from collections.abc import Callable
from typing import Any

import pytest

from gymq.errors import UsageError
from gymq.trainer import SyncTrainingRun, TrainingRun
from gymq.trainer.training_batch import TrainingBatch
from tests.support.engine import Body, say
from tests.support.waiting import until
from tests.support.world import World

from .conftest import Alternating, Examples

FAILS = {"verdict": {"fails": {"class": "verifier_failed", "retryable": False}}}
Hold = Callable[[str], asyncio.Event]


@pytest.fixture
def hold(world: World) -> Hold:
    """Makes the engine wait with its replies to a prompt until the event is set."""
    held: dict[str, asyncio.Event] = {}

    async def turn(body: Body) -> Body:
        prompt = body["messages"][-1]["content"]
        if prompt in held:
            await held[prompt].wait()
        return say("done")

    world.engine.turn = turn
    return lambda prompt: held.setdefault(prompt, asyncio.Event())


def asked(world: World) -> list[str]:
    return [body["messages"][-1]["content"] for body in world.engine.requests]


def indices(*batches: TrainingBatch) -> list[list[int]]:
    return [[group.task_index for group in batch.groups] for batch in batches]


async def test_the_trainer_waits_for_the_oldest_group_before_it_becomes_too_old(
    training: TrainingRun, world: World, examples: Examples, hold: Hold
) -> None:
    long = hold("say 0")
    batches = training.train_batches(examples(6), groups=1, num_samples=2, ahead=2, seed=None, epochs=1)
    assert indices(await anext(batches), await anext(batches)) == [[1], [2]]  # the long one is two behind now
    waiting = asyncio.create_task(anext(batches))
    await until(lambda: "say 4" in asked(world))
    assert not waiting.done()
    long.set()
    assert indices(await waiting) == [[0]]
    assert "say 5" not in asked(world)  # three may be under way
    assert indices(*[batch async for batch in batches]) == [[3], [4], [5]]


async def test_nothing_begins_before_an_update_that_is_not_asked_for_ahead(
    training: TrainingRun, world: World, examples: Examples
) -> None:
    batches = training.train_batches(examples(4), groups=2, num_samples=2, ahead=0, seed=None, epochs=1)
    assert indices(await anext(batches)) == [[0, 1]]
    assert len(world.engine.requests) == 4
    assert indices(*[batch async for batch in batches]) == [[2, 3]]


async def test_what_is_ahead_is_rolled_out_while_the_caller_trains(
    training: TrainingRun, world: World, examples: Examples
) -> None:
    batches = training.train_batches(examples(4), groups=1, num_samples=1, ahead=3, seed=None)
    await anext(batches)
    await until(lambda: len(world.engine.requests) == 4)
    await batches.aclose()


async def test_failed_groups_are_replaced_by_those_of_other_rows(
    training: TrainingRun, world: World, examples: Examples
) -> None:
    rows = [*examples(1, **FAILS), *examples(3, first=1)]
    batches = training.train_batches(rows, groups=2, num_samples=2, ahead=0, seed=None, epochs=1)
    first = await anext(batches)
    assert sorted(indices(first)[0]) == [1, 2]
    assert first.metrics["failed_groups"] == 1
    assert indices(*[batch async for batch in batches]) == [[3]]


async def test_failed_groups_are_trained_on_with_what_there_is(training: TrainingRun, examples: Examples) -> None:
    rows = [*examples(1, **FAILS), *examples(1, first=1)]
    batches = training.train_batches(
        rows, groups=2, num_samples=2, ahead=0, seed=None, epochs=1, on_failed_group="mask"
    )
    (batch,) = [batch async for batch in batches]
    assert [len(group.samples) for group in batch.groups] == [0, 2]
    assert len(batch.records) == 2


@pytest.mark.parametrize("options", [{"on_failed_group": "raise"}, {"on_failed_group": "refill"}])
async def test_a_training_whose_groups_all_fail_ends(
    training: TrainingRun, examples: Examples, options: dict[str, Any]
) -> None:
    with pytest.raises(UsageError, match="0 of 1 samples: as the row asks"):
        await anext(training.train_batches(examples(1, **FAILS), groups=1, num_samples=1, **options))


async def test_groups_that_do_not_vary_are_replaced(
    training: TrainingRun, world: World, alternating: Alternating
) -> None:
    dull = world.row("say 0", agent="player", reward=0.0)
    varied = [world.row(f"say {at}", agent="player", varies=True) for at in (1, 2)]
    rows = [varied[0], dull, varied[1]]
    batches = training.train_batches(rows, groups=2, num_samples=2, ahead=0, seed=None, epochs=1, varied=True)
    (batch,) = [batch async for batch in batches]
    assert sorted(indices(batch)[0]) == [0, 2]
    assert batch.metrics["without_variance"] == 1


@pytest.mark.parametrize("ahead", [0, 1])
async def test_a_batch_has_as_many_groups_as_its_tokens_need(
    training: TrainingRun, examples: Examples, ahead: int
) -> None:
    (group,) = [group async for group in training.run_rollouts(examples(1, first=1000), num_samples=2)]
    batches = training.train_batches(
        examples(16),
        groups=4,
        num_samples=2,
        ahead=ahead,
        seed=None,
        epochs=1,
        token_budget=2 * group.num_sampled_tokens,
    )
    found = [batch async for batch in batches]
    sizes = [len(batch.groups) for batch in found]
    assert sizes == [*[4] * (1 + ahead), *[2] * (6 - 2 * ahead)]
    assert {batch.metrics["tokens"] for batch in found if len(batch.groups) == 2} == {2.0 * group.num_sampled_tokens}


async def test_stragglers_of_a_batch_are_cut(training: TrainingRun, world: World) -> None:
    num_asked: Counts[str] = Counts()
    never = asyncio.Event()

    async def turn(body: Body) -> Body:
        prompt = body["messages"][-1]["content"]
        num_asked[prompt] += 1
        if prompt == "say 0" or (prompt == "say 1" and num_asked[prompt] == 3):
            await never.wait()
        return say("done")

    world.engine.turn = turn
    rows = [world.row(f"say {at}") for at in range(6)]
    batches = training.train_batches(rows, groups=6, num_samples=3, ahead=0, seed=None, epochs=1, straggler_share=0.6)
    (batch,) = [batch async for batch in batches]
    assert indices(batch) == [[1, 2, 3, 4, 5]]
    assert [len(group.samples) for group in batch.groups] == [2, 3, 3, 3, 3]
    assert batch.metrics["cut_groups"] == 2
    never.set()


async def test_a_training_goes_on_after_its_state(world: World, run: str, examples: Examples, hold: Hold) -> None:
    options: dict[str, Any] = {"groups": 2, "num_samples": 2, "ahead": 2, "epochs": 2}
    long = hold("say 3")

    async def train(state: Any, count: int) -> list[TrainingBatch]:
        training = await TrainingRun.connect(world.url, run, model=world.name("policy"))
        try:
            batches = training.train_batches(examples(6), state=state, **options)
            return [batch for _ in range(count) async for batch in _first(batches)]
        finally:
            await training.close()

    *_, saved, _lost = await train(None, 2)
    long.set()
    rest = await train(json.loads(json.dumps(saved.state)), 5)
    trained = [index for batch in [saved, *rest] for index in indices(batch)[0]]
    assert sorted(trained) == list(range(12))
    assert len(asked(world)) == 12 * 2  # none is rolled out again
    assert [batch.step for batch in rest] == [1, 2, 3, 4, 5]


async def _first(batches: Any) -> Any:
    if (batch := await anext(batches, None)) is not None:
        yield batch


async def test_processes_share_the_rows(training: TrainingRun, examples: Examples) -> None:
    parts = [
        training.train_batches(examples(4), groups=2, num_samples=1, ahead=0, seed=None, epochs=1, share=(part, 2))
        for part in range(2)
    ]
    assert [indices(*[batch async for batch in batches]) for batches in parts] == [[[0, 2]], [[1, 3]]]


async def test_a_list_is_gone_through_in_another_order_in_each_epoch(training: TrainingRun, examples: Examples) -> None:
    rows = [{**row, "number": number} for number, row in enumerate(examples(6))]
    batches = training.train_batches(rows, groups=6, num_samples=1, ahead=0, seed=1, epochs=2)
    orders = [[group.example["number"] for group in batch.groups] async for batch in batches]
    assert [sorted(order) for order in orders] == [list(range(6))] * 2
    assert len({tuple(order) for order in [*orders, list(range(6))]}) == 3


async def test_a_batch_has_what_a_loss_needs(training: TrainingRun, examples: Examples) -> None:
    rows = examples(1, verdict={"reward": 0.5})
    batch = await anext(training.train_batches(rows, groups=1, num_samples=2, ahead=0))
    assert [one.record.reward for one in batch.records] == [0.5, 0.5]
    assert [one.advantage for one in batch.records] == [0.0, 0.0]
    assert all(one.is_trained == one.record.is_sampled() for one in batch.records)
    metrics = batch.metrics
    assert metrics.pop("wait_s") > 0
    assert metrics == {
        "reward": 0.5,
        "rollouts": 2.0,
        "tokens": float(sum(sum(one.record.is_sampled()) for one in batch.records)),
        "lag_mean": 0.0,
        "lag_max": 0.0,
        "stale": 0.0,
        "masked_token_share": 0.0,
        "truncated": 0.0,
        "failed_groups": 0.0,
        "without_variance": 1.0,
        "stale_groups": 0.0,
        "cut_groups": 0.0,
        "dropped_tokens": 0.0,
    }


async def test_an_evaluation_runs_beside_the_training(
    training: TrainingRun, world: World, examples: Examples, hold: Hold
) -> None:
    slow = hold("say 100")
    batches = training.train_batches(
        examples(50),
        groups=1,
        num_samples=1,
        evaluate_every=1000,
        evaluation_rows=examples(2, first=100, verdict={"reward": 0.25}),
        evaluation_samples=2,
    )
    for _ in range(3):  # none waits for it
        assert "evaluation_reward" not in (await anext(batches)).metrics
    await until(lambda: asked(world).count("say 100") == 2)
    slow.set()
    async for batch in batches:
        if "evaluation_reward" in batch.metrics:
            break
    assert (batch.metrics["evaluation_reward"], batch.metrics["evaluation_step"]) == (0.25, 0.0)
    await batches.aclose()


async def test_masked_rollouts_are_no_part_of_the_loss(training: TrainingRun, examples: Examples) -> None:
    rows = examples(1, verdict={"mask_sample": True})
    batch = await anext(training.train_batches(rows, groups=1, num_samples=1, ahead=0))
    assert sum(batch.records[0].is_trained) == 0
    assert batch.metrics["masked_token_share"] == 1.0


async def test_batches_as_tensors(training: TrainingRun, world: World, examples: Examples) -> None:
    pytest.importorskip("torch")
    world.engine.turn = lambda body: say(body["messages"][-1]["content"] * 2)
    rows = [*examples(1), *examples(1, first=1000)]
    batch = await anext(training.train_batches(rows, groups=2, num_samples=1, ahead=0, seed=None))
    tensors = batch.tensors()
    longest = max(len(one.record.token_ids) for one in batch.records)
    for name in ("input_ids", "attention_mask", "sampled", "log_probs", "behind"):
        assert tensors[name].shape == (2, longest)
    for row, one in enumerate(batch.records):
        length = len(one.record.token_ids)
        assert tensors["attention_mask"][row].tolist() == [1] * length + [0] * (longest - length)
        assert tensors["input_ids"][row, :length].tolist() == one.record.token_ids
        assert tensors["sampled"][row].sum() == sum(one.record.is_sampled())
    assert tensors["advantages"].tolist() == [0.0, 0.0]


async def test_batches_come_without_an_event_loop(world: World, run: str, examples: Examples) -> None:
    def train() -> list[list[int]]:
        with SyncTrainingRun(world.url, run, model=world.name("policy")) as training:
            return indices(*training.train_batches(examples(4), groups=2, num_samples=1, seed=None, epochs=1))

    assert await asyncio.to_thread(train) == [[0, 1], [2, 3]]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"groups": 0}, "at least 1"),
        ({"ahead": 2, "max_staleness": 1}, "is that old"),
        ({"candidates": 2}, "known=Difficulties"),
        ({"on_stale": "drop"}, "expected 'train', 'mask' or 'discard'"),
        ({"token_budget": 0}, "at least 1"),
        ({"straggler_share": 0.0}, "more than 0"),
        ({"first": 3, "varied": True, "num_samples": 2}, "is seen after 2 to 2 of them"),
        ({"evaluate_every": 2}, "needs `evaluation_rows`"),
        ({"share": (2, 2)}, "expected a part"),
        ({"state": {"step": 1, "next": 9, "waiting": [[7, 0]]}}, "give the same rows"),
    ],
)
async def test_options_that_do_not_fit(
    training: TrainingRun, examples: Examples, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(UsageError, match=says):
        training.train_batches(examples(1), **{"groups": 1, "num_samples": 1, "epochs": 1, **options})


async def test_rows_that_are_none_make_no_batch(training: TrainingRun) -> None:
    assert [batch async for batch in training.train_batches([], groups=1, num_samples=1)] == []
