"""Groups of samples: given out as they are completed, each once, and short of nothing that was stored."""

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

import gymq
from gymq.bus import Bus, streams
from gymq.bus.queue.outcome_store import OutcomeStore
from gymq.cluster.server import EmbeddedServer
from gymq.data.rows import RowError
from gymq.errors import UsageError
from gymq.failures import Retry
from gymq.protocol import codec
from gymq.protocol.messages import BadMessage, Outcome
from gymq.trainer import TrainingRun
from gymq.trainer.groups import Group
from tests.support.engine import Body, say
from tests.support.environments import Counter, Grader
from tests.support.queues import queues_of_runs
from tests.support.waiting import until, until_answer
from tests.support.world import World

from .conftest import Examples


async def collected(batch: Any) -> list[Group]:
    return [group async for group in batch]


def asked(body: Body) -> str:
    return str(body["messages"][-1]["content"])


async def test_a_group_holds_its_samples_with_rewards_and_tokens(
    training: TrainingRun, world: World, examples: Examples
) -> None:
    rows = examples(3)
    groups = await collected(training.run_rollouts(rows, num_samples=4))
    assert sorted(group.task_index for group in groups) == [0, 1, 2]
    for group in groups:
        assert group.example is rows[group.task_index]
        assert group.is_complete
        assert group.rewards == [1.0] * 4
        assert len({sample.rollout_index for sample in group.samples}) == 4
        record = group.samples[0].record()
        assert len(record.token_ids) == len(record.log_probs)
        assert sum(record.is_sampled())
    assert len(world.engine.requests) == 12


async def test_groups_come_as_they_are_completed(training: TrainingRun, world: World, examples: Examples) -> None:
    hold = asyncio.Event()

    async def turn(body: Body) -> Body:
        if asked(body) == "say 0":
            await hold.wait()
        return say("done")

    world.engine.turn = turn
    seen = []
    async for group in training.run_rollouts(examples(4), num_samples=2):
        seen.append(group.task_index)
        if len(seen) == 3:
            hold.set()
    assert seen[-1] == 0
    assert sorted(seen) == [0, 1, 2, 3]


async def test_groups_come_in_the_order_of_the_examples_if_asked_for(
    training: TrainingRun, world: World, examples: Examples
) -> None:
    late = asyncio.Event()

    async def turn(body: Body) -> Body:
        if asked(body) == "say 0":
            await late.wait()
        elif asked(body) == "say 5":
            late.set()
        return say("done")

    world.engine.turn = turn
    groups = await collected(training.run_rollouts(examples(6), in_order=True))
    assert [group.task_index for group in groups] == list(range(6))


async def test_the_surplus_is_cut_when_a_group_has_enough(
    training: TrainingRun, world: World, examples: Examples
) -> None:
    never = asyncio.Event()
    num_asked = 0

    async def turn(body: Body) -> Body:
        nonlocal num_asked
        num_asked += 1
        if num_asked <= 2:
            await never.wait()
        return say("done")

    world.engine.turn = turn
    (group,) = await collected(training.run_rollouts(examples(1), num_samples=4, num_surplus=2))
    assert group.is_complete
    await until(lambda: world.engine.num_dropped >= 2)


async def test_a_straggler_is_cut_and_its_group_given_out_short(
    training: TrainingRun, world: World, examples: Examples
) -> None:
    never = asyncio.Event()
    num_asked = 0

    async def turn(body: Body) -> Body:
        nonlocal num_asked
        num_asked += 1
        if num_asked == 3:
            await never.wait()
        return say("done")

    world.engine.turn = turn
    (group,) = await collected(training.run_rollouts(examples(1), num_samples=3, straggler_s=0.5))
    assert not group.is_complete
    assert len(group.samples) == 2
    await until(lambda: world.engine.num_dropped)


async def test_a_batch_that_is_cut_gives_out_what_is_there(
    training: TrainingRun, world: World, examples: Examples
) -> None:
    never = asyncio.Event()

    async def turn(body: Body) -> Body:
        if asked(body) != "say 1":
            await never.wait()
        return say("done")

    world.engine.turn = turn
    batch = training.run_rollouts(examples(4), num_samples=2)
    numbers = {}
    async for group in batch:
        numbers[group.task_index] = len(group.samples)
        batch.cut()
    assert numbers == {0: 0, 1: 2, 2: 0, 3: 0}


async def test_a_batch_that_is_cut_does_not_wait_for_another_one_with_the_same_group(
    training: TrainingRun, world: World, examples: Examples
) -> None:
    may_end = asyncio.Event()

    async def turn(body: Body) -> Body:
        if len(world.engine.requests) > 1:
            await may_end.wait()
        return say("done")

    world.engine.turn = turn
    first = asyncio.create_task(collected(training.run_rollouts(examples(1), num_samples=2)))
    await until(lambda: len(world.engine.requests) == 2)
    batch = training.run_rollouts(examples(1), num_samples=2)
    second = asyncio.create_task(collected(batch))
    await asyncio.sleep(0)
    batch.cut()
    (cut,) = await second
    assert not cut.is_complete
    may_end.set()
    (whole,) = await first
    assert whole.is_complete  # its rollouts are not those of the batch that was cut


async def test_a_failure_is_no_sample_and_has_no_reward(
    training: TrainingRun, world: World, examples: Examples
) -> None:
    good, bad = examples(1), examples(1, first=1, verdict={"fails": {"class": "invalid_task"}})
    groups = {group.task_index: group async for group in training.run_rollouts(good + bad, num_samples=2)}
    assert groups[0].is_complete
    assert groups[1].samples == []
    assert [failure.failure_class for failure in groups[1].failures] == ["invalid_task"] * 2


async def test_a_rollout_without_token_ids_is_a_sample_for_evaluation_only(
    training: TrainingRun, world: World, examples: Examples
) -> None:
    world.engine.spoil = lambda completion: completion["choices"][0]["message"].update(empty=True)
    world.engine.turn = lambda body: {**say("done"), "empty": True}
    (group,) = await collected(training.run_rollouts(examples(1)))
    assert [failure.failure_class for failure in group.failures] == ["no_token_ids"]
    (group,) = await collected(training.run_rollouts(examples(1), on_untrainable="allow"))
    assert group.rewards == [1.0]


async def test_an_outcome_is_read_once_however_often_a_group_looks_for_more(
    training: TrainingRun, world: World, examples: Examples, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_end = asyncio.Event()
    read: list[int] = []
    read_outcomes = OutcomeStore.read

    async def noted(*given: Any, **options: Any) -> AsyncIterator[tuple[int, Outcome]]:
        async for sequence, outcome in read_outcomes(*given, **options):
            read.append(outcome.rollout_index)
            yield sequence, outcome

    async def turn(body: Body) -> Body:
        if len(world.engine.requests) > 2:
            await may_end.wait()
        return say("done")

    world.engine.turn = turn
    monkeypatch.setattr(OutcomeStore, "read", noted)
    batch = training.run_rollouts(examples(1), num_samples=3)
    await until_answer(lambda: world.js.count(streams.ROLLOUTS, f"gym.rollouts.{training.run}.>"), lambda n: n == 2)
    assert training.thread is not None
    training.thread.do(training._groups.on_missed)
    await until(lambda: len(read) == 2)
    may_end.set()
    (group,) = await collected(batch)
    assert group.is_complete
    assert sorted(read) == [0, 1, 2]


# The store ------------------------------------------------------------------------------------------------------------


async def test_a_batch_that_is_asked_for_again_comes_from_the_store(
    training: TrainingRun, world: World, examples: Examples
) -> None:
    first = await collected(training.run_rollouts(examples(3), num_samples=4, num_surplus=1, in_order=True))
    num_asked = len(world.engine.requests)
    again = await TrainingRun.connect(world.url, training.run)
    try:
        second = await collected(again.run_rollouts(examples(3), num_samples=4, num_surplus=1, in_order=True))
    finally:
        await again.close()
    assert len(world.engine.requests) == num_asked
    assert [group.samples for group in second] == [group.samples for group in first]


async def test_only_what_is_missing_of_a_larger_group_is_made(
    training: TrainingRun, world: World, examples: Examples
) -> None:
    await collected(training.run_rollouts(examples(1), num_samples=2))
    (group,) = await collected(training.run_rollouts(examples(1), num_samples=5))
    assert group.is_complete
    assert len(world.engine.requests) == 5


async def test_a_surplus_that_the_store_made_needless_can_still_be_made(
    training: TrainingRun, world: World, examples: Examples
) -> None:
    await collected(training.run_rollouts(examples(1), num_samples=2))
    await collected(training.run_rollouts(examples(1), num_samples=2, num_surplus=2))
    assert len(world.engine.requests) == 2
    (group,) = await collected(training.run_rollouts(examples(1), num_samples=4))
    assert group.is_complete


async def test_a_failure_that_may_pass_is_tried_again_when_it_is_asked_for_again(
    training: TrainingRun, world: World, examples: Examples, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Retry, "pause_s", lambda *_, **__: None)  # agents give up at once
    world.engine.turn = lambda body: (500, {"error": {"message": "not now"}})
    (group,) = await collected(training.run_rollouts(examples(1)))
    assert [failure.failure_class for failure in group.failures] == ["model_failed"]
    world.engine.turn = lambda body: say("done")
    (group,) = await collected(training.run_rollouts(examples(1)))
    assert group.is_complete
    assert not group.failures


class FailsFirst(Grader):
    """Fails the first rollout, and holds the third, which takes its place."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.num_verified = 0
        self.may_end = asyncio.Event()

    async def verify(self, request: gymq.VerifyRequest[gymq.Row]) -> gymq.Verdict:
        self.num_verified += 1
        if self.num_verified == 1:
            raise gymq.RolloutError(gymq.FailureClass.VERIFIER_FAILED, "not now", retryable=True)
        if self.num_verified == 3:
            await self.may_end.wait()
        return gymq.Verdict(1.0)


async def test_a_failure_that_a_refill_took_the_place_of_is_not_tried_again(
    training: TrainingRun, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Retry, "pause_s", lambda *_, **__: None)  # agents give up at once
    verifier = FailsFirst()
    await world.add_resources("failing", verifier)
    await world.add_agent("player", "failing", max_concurrency=1)
    rows = [world.row(agent="player", _ng_task_index=0)]
    group: dict[str, Any] = {"num_samples": 2, "on_failed_group": "refill"}
    training.run_rollouts(rows, **group)
    await until(lambda: verifier.num_verified == 3)
    await training.close()
    again = await TrainingRun.connect(world.url, training.run)
    try:
        batch = again.run_rollouts(rows, **group)
        verifier.may_end.set()
        (of_queue,) = await collected(batch)
        (of_store,) = await collected(again.run_rollouts(rows, **group))
    finally:
        await again.close()
    assert len(of_queue.samples) == len(of_store.samples) == 2
    assert verifier.num_verified == 3


@pytest.mark.parametrize(("temperature", "num_samples"), [(0.7, 0), (1.0, 1)])
async def test_log_probs_of_another_distribution_than_the_sampled_one_are_not_trained_on(
    training: TrainingRun, world: World, temperature: float, num_samples: int
) -> None:
    world.engine.log_probs = "raw"
    rows = [world.row(params={"temperature": temperature}, _ng_task_index=0)]
    (group,) = await collected(training.run_rollouts(rows))
    assert len(group.samples) == num_samples
    for failure in group.failures:
        assert failure.failure_class == "not_trainable"
        assert failure.message == (
            "sampled with temperature 0.7, but the log probs are those of the model at temperature 1: start the engine "
            "with --logprobs-mode processed_logprobs (vLLM), or sample without these settings"
        )
    (group,) = await collected(training.run_rollouts(rows, on_untrainable="allow"))
    assert group.samples[0].record().sampling == [{"temperature": temperature, "log_probs": "raw"}]


async def test_a_failed_rollout_is_replaced_once_by_another_if_its_group_has_samples(
    training: TrainingRun, world: World, examples: Examples
) -> None:
    num_asked = 0

    def turn(body: Body) -> Any:
        nonlocal num_asked
        num_asked += 1
        is_first = "say 0" in str(body["messages"]) and num_asked > 1
        return say("done") if is_first else (400, {"error": {"message": "no"}})

    world.engine.turn = turn
    first, second = examples(1), examples(1, first=1)
    (group,) = await collected(training.run_rollouts(first, num_samples=3, on_failed_group="refill"))
    assert (len(group.samples), len(group.failures), num_asked) == (3, 1, 4)
    (group,) = await collected(training.run_rollouts(first, num_samples=3, on_failed_group="refill"))
    assert (len(group.samples), num_asked) == (3, 4)
    (group,) = await collected(training.run_rollouts(second, num_samples=3, on_failed_group="refill"))
    assert (len(group.samples), num_asked) == (0, 7)


async def test_a_group_that_lacks_samples_is_an_error_if_it_shall_be_one(
    training: TrainingRun, world: World, examples: Examples
) -> None:
    world.engine.turn = lambda body: (400, {"error": {"message": "out of order"}})
    seen = []
    batch = training.run_rollouts(examples(1), num_samples=2, on_failed_group="raise")
    with pytest.raises(UsageError, match=r"task 0 \('say 0'\) has 0 of 2 samples: .*out of order"):
        seen += await collected(batch)
    assert seen == []


async def test_the_tokens_that_one_sequence_leaves_out_are_counted(
    training: TrainingRun, world: World, five_calls: dict[str, Any]
) -> None:
    (group,) = await collected(training.run_rollouts([five_calls]))
    (sample,) = group.samples
    sampled = [sum(record.is_sampled()) for record in sample.records()]
    assert (len(sampled), sum(sampled)) == (5, world.engine.num_sampled)
    assert sample.num_sampled_tokens == (sampled[0], sum(sampled[1:]))
    assert group.dropped_token_share == sum(sampled[1:]) / sum(sampled)


async def test_another_row_under_a_known_index_is_refused(
    training: TrainingRun, world: World, examples: Examples
) -> None:
    await collected(training.run_rollouts(examples(1)))
    with pytest.raises(UsageError, match="another row"):
        await collected(training.run_rollouts(examples(1, subject="history")))


async def test_a_row_that_leaves_its_tools_to_its_environment_is_the_same_row_when_it_is_stored(
    training: TrainingRun, world: World
) -> None:
    await world.add_resources("counter", Counter())
    await world.add_agent("counting", "counter")
    rows = [world.row(agent="counting", _ng_task_index=0)]
    for _ in range(2):  # rolled out, then answered from the store
        (group,) = await collected(training.run_rollouts(rows, num_samples=2))
        assert group.rewards == [1.0, 1.0]
    assert [tool["name"] for tool in group.samples[0].result["responses_create_params"]["tools"]] == ["add"]
    assert len(world.engine.requests) == 2


async def test_one_group_that_cannot_be_made_costs_no_other(
    training: TrainingRun, world: World, examples: Examples
) -> None:
    await collected(training.run_rollouts(examples(1)))
    batch = training.run_rollouts([*examples(1, subject="x"), *examples(3, first=1)], in_order=True)
    seen: list[int] = []

    async def look() -> None:
        async for group in batch:
            seen.append(group.task_index)

    with pytest.raises(UsageError, match="another row"):
        await look()
    assert seen == [1, 2, 3]


async def test_a_row_that_is_too_large_costs_no_other_group(
    training: TrainingRun, world: World, examples: Examples, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(codec, "MAX_BODY_BYTES", 20_000)
    seen: list[int] = []

    async def look() -> None:
        async for group in training.run_rollouts([*examples(1, picture="x" * 20_000), *examples(2, first=1)]):
            seen.append(group.task_index)

    with pytest.raises(BadMessage, match="exceeds the limit"):
        await look()
    assert sorted(seen) == [1, 2]


KILLED = """
import asyncio, json, sys
from gymq.trainer import TrainingRun

async def main(url, run, rows):
    training = await TrainingRun.connect(url, run)
    async for group in training.run_rollouts(json.loads(rows), num_samples=3):
        print(group.task_index, flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


async def test_nothing_is_lost_or_made_twice_when_the_trainer_is_killed(
    world: World, run: str, examples: Examples
) -> None:
    free = asyncio.Semaphore(3)  # as many replies as may be given

    async def turn(body: Body) -> Body:
        await free.acquire()
        return say("done")

    world.engine.turn = turn
    rows = examples(4)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", KILLED, world.url, run, json.dumps(rows), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    free.release()
    await until(lambda: len(world.engine.requests) >= 12)
    process.kill()
    await process.wait()
    for _ in range(12):
        free.release()
    again = await TrainingRun.connect(world.url, run)
    try:
        groups = await collected(again.run_rollouts(rows, num_samples=3))
    finally:
        await again.close()
    assert sorted(group.task_index for group in groups) == [0, 1, 2, 3]
    assert all(group.is_complete for group in groups)
    assert len(world.engine.requests) == 12


async def test_groups_outlive_a_server_that_goes_away_for_a_while(own_server: EmbeddedServer, run: str) -> None:
    bus = await Bus.connect(own_server.url, role="test", name="test")
    back = asyncio.Event()

    async def turn(body: Body) -> Body:
        if asked(body) != "say 0":
            await back.wait()
        return say("done")

    async with AsyncExitStack() as stack:
        stack.push_async_callback(bus.close)
        await stack.enter_async_context(queues_of_runs(bus))
        world = World(own_server.url, bus, stack)
        await world.start()
        world.engine.turn = turn
        await world.add_model()
        await world.add_resources("grader", Grader())
        await world.add_agent("asker", "grader")
        training = await TrainingRun.connect(own_server.url, run)
        stack.push_async_callback(training.close)
        rows = [world.row(f"say {at}", _ng_task_index=at) for at in range(4)]
        numbers = []
        async for group in training.run_rollouts(rows, num_samples=2):
            numbers.append(len(group.samples))
            if len(numbers) == 1:
                os.kill(own_server.pid, signal.SIGKILL)
                await own_server.wait()
                await own_server.start()
                back.set()
        assert numbers == [2] * 4


# Bad input ------------------------------------------------------------------------------------------------------------


async def test_examples_of_an_iterator_are_rolled_out(training: TrainingRun, examples: Examples) -> None:
    assert len(await collected(training.run_rollouts(iter(examples(2))))) == 2


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            lambda rows: rows[1].pop("_ng_task_index"),
            "('say 1'): expected an object with a `_ng_task_index`",
        ),
        (lambda rows: rows[1].update(_ng_task_index=0), "`_ng_task_index` 0 occurs twice"),
        (lambda rows: rows[1].update(_ng_task_index=-1), "examples:2 ('say 1'): `_ng_task_index` is not a task index"),
        (lambda rows: rows[1].pop("agent_ref"), "examples:2 ('say 1'): the row names no agent"),
        (lambda rows: rows[1].pop("responses_create_params"), "examples:2: the row has no prompt"),
        (lambda rows: rows[1].update(x=object()), "no JSON form"),
        (lambda rows: rows.append(3), "examples:3: expected an object"),
    ],
)
async def test_examples_that_cannot_be_used_are_named_before_anything_is_asked_for(
    training: TrainingRun, world: World, examples: Examples, spoil: Any, message: str
) -> None:
    rows = examples(2)
    spoil(rows)
    with pytest.raises(RowError, match=re.escape(message)):
        training.run_rollouts(rows)
    assert not world.engine.requests


@pytest.mark.parametrize(
    "options", [{"num_samples": 0}, {"num_surplus": -1}, {"max_staleness": -1}, {"rollout_timeout_s": 0}]
)
async def test_options_that_do_not_fit_are_refused(
    training: TrainingRun, examples: Examples, options: dict[str, Any]
) -> None:
    with pytest.raises(UsageError):
        training.run_rollouts(examples(1), **options)


@pytest.mark.usefixtures("no_patience")
async def test_an_agent_that_does_not_run_is_named(training: TrainingRun, examples: Examples) -> None:
    rows = examples(1)
    rows[0]["agent_ref"] = {"name": "nobody"}
    with pytest.raises(UsageError, match="no agent named 'nobody' is running"):
        await collected(training.run_rollouts(rows))


def test_the_name_of_a_run_is_checked() -> None:
    with pytest.raises(UsageError, match="run"):
        TrainingRun(None, "my run")  # type: ignore[arg-type]


@pytest.mark.usefixtures("no_patience")
async def test_stored_groups_need_no_agent(
    training: TrainingRun, world: World, examples: Examples, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = examples(1)
    await collected(training.run_rollouts(rows))

    async def none_runs(*_: object, **__: object) -> bool:
        return False

    monkeypatch.setattr("gymq.trainer.group_rollouts.is_running", none_runs)
    resumed = await TrainingRun.connect(world.url, run, model=world.name("policy"))
    (group,) = await collected(resumed.run_rollouts(rows))
    await resumed.close()
    assert group.is_complete


async def test_failures_of_another_row_are_not_those_of_this_one(
    training: TrainingRun, world: World, examples: Examples
) -> None:
    rows = examples(1)
    world.engine.turn = lambda body: (400, {"error": {"message": "no"}})
    (group,) = await collected(training.run_rollouts(rows))
    assert group.failures
    with pytest.raises(UsageError, match="another row"):
        await collected(training.run_rollouts(examples(1, subject="history")))


async def test_who_leaves_the_loop_may_request_the_same_groups_again(
    training: TrainingRun, world: World, examples: Examples
) -> None:
    may_end = asyncio.Event()

    async def turn(body: Body) -> Body:
        if asked(body) != "say 0":
            await may_end.wait()
        return say("done")

    world.engine.turn = turn
    async for group in training.run_rollouts(examples(3)):
        assert group.task_index == 0
        break
    again = asyncio.create_task(collected(training.run_rollouts(examples(3))))
    at_the_same_time = asyncio.create_task(collected(training.run_rollouts(examples(3))))
    may_end.set()
    assert len(await again) == len(await at_the_same_time) == 3
    assert len(world.engine.requests) == 3
