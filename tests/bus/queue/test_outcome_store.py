"""Outcomes: one for each rollout, whole, and readable whatever somebody stored."""

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable
from typing import Any
from unittest.mock import ANY

import pytest

from gymq.bus import Bus, BusError, blobs, jetstream, streams
from gymq.bus.jetstream import JetStream
from gymq.bus.queue.outcome_store import OutcomeStore
from gymq.cluster.server import EmbeddedServer
from gymq.protocol import subjects
from gymq.protocol.codec import Decoder, encode
from gymq.protocol.messages import BadMessage, BlobRef, Failure, FailureClass, Outcome, Stage, Task, VerifiedRollout
from gymq.protocol.subjects import RolloutId
from tests.support.waiting import DEADLINE_S, until

Kill = Callable[[], Awaitable[None]]


@pytest.fixture
def store(bus: Bus) -> OutcomeStore:
    return OutcomeStore(bus)


def rollout(run: str, task_index: int = 0, rollout_index: int = 0, **members: Any) -> VerifiedRollout:
    common: dict[str, Any] = {"agent": "a", "row": b"{}", "response": {"output": []}, "reward": 1.0}
    return VerifiedRollout(run=run, task_index=task_index, rollout_index=rollout_index, **common | members)


def failure(run: str) -> Failure:
    return Failure(
        run=run,
        task_index=0,
        rollout_index=0,
        agent="a",
        row=b"{}",
        failure_class=FailureClass.MODEL_FAILED,
        stage=Stage.MODEL,
        message="no",
    )


decode_ref = Decoder(BlobRef)


async def put(store: OutcomeStore, outcome: Outcome, replaces: int | None = None) -> bool:
    return await store.put(outcome, replaces=replaces, patience_s=20)


async def everything(store: OutcomeStore, run: str, **options: Any) -> list[Outcome]:
    return [outcome async for _, outcome in store.read(run, **options)]


async def test_what_is_put_is_found_and_read(store: OutcomeStore, run: str) -> None:
    outcome = rollout(run, 3, 4)
    assert await put(store, outcome)
    found = await store.find(run, 3, 4)
    assert found is not None
    assert await store.decode(found.data) == outcome
    assert await everything(store, run) == [outcome]


async def test_a_rollout_without_an_outcome_is_none(store: OutcomeStore, run: str) -> None:
    assert await store.find(run, 0, 0) is None
    assert await everything(store, run) == []


async def test_the_first_outcome_counts(store: OutcomeStore, run: str) -> None:
    assert await put(store, rollout(run, reward=0.25))
    assert not await put(store, rollout(run, reward=0.75))
    assert [outcome.reward for outcome in await everything(store, run) if isinstance(outcome, VerifiedRollout)] == [
        0.25
    ]


async def test_of_fifty_racing_attempts_one_counts_and_knows_it(
    shared_url: str, store: OutcomeStore, run: str, connect: Callable[[str], Awaitable[Bus]]
) -> None:
    stores = [OutcomeStore(await connect(shared_url)) for _ in range(5)]
    outcomes = [rollout(run, worker=f"w{number}") for number in range(50)]
    won = await asyncio.gather(*(put(stores[number % 5], outcome) for number, outcome in enumerate(outcomes)))
    assert await everything(store, run) == [outcomes[won.index(True)]]
    assert won.count(True) == 1


async def test_putting_the_same_outcome_again_says_that_it_is_ours(store: OutcomeStore, run: str) -> None:
    """As after an acknowledgement that was lost on the way."""
    outcome = rollout(run)
    assert await put(store, outcome)
    assert await put(store, outcome)
    assert len(await everything(store, run)) == 1


async def test_a_failure_is_replaced_by_the_outcome_that_names_it(store: OutcomeStore, run: str) -> None:
    await put(store, failure(run))
    stored = await store.find(run, 0, 0)
    assert stored is not None
    assert not await put(store, rollout(run))
    assert not await put(store, rollout(run), replaces=stored.sequence + 1)
    assert await put(store, rollout(run), replaces=stored.sequence)
    assert await everything(store, run) == [rollout(run)]


async def test_what_replaced_a_failure_is_not_replaced_again(store: OutcomeStore, run: str) -> None:
    await put(store, failure(run))
    stored = await store.find(run, 0, 0)
    assert stored is not None
    assert await put(store, rollout(run, reward=0.25), replaces=stored.sequence)
    assert not await put(store, rollout(run, reward=0.75), replaces=stored.sequence)


def task(outcome: Outcome, replaces: int | None = None) -> Task:
    return Task(
        run=outcome.run,
        task_index=outcome.task_index,
        rollout_index=outcome.rollout_index,
        agent="a",
        row=b"{}",
        timeout_s=60.0,
        replaces=replaces,
    )


@pytest.mark.parametrize("batch_bytes", [jetstream.BATCH_BYTES, 1])
async def test_of_many_tasks_asked_for_at_once_each_learns_whether_it_is_settled(
    store: OutcomeStore, run: str, batch_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jetstream, "BATCH_BYTES", batch_bytes)
    outcomes = [rollout(run, index) for index in range(600)]
    for outcome in outcomes[::100]:
        assert await put(store, outcome)
    found = await store.find(run, 200, 0)
    assert found is not None
    tasks = [task(outcome, found.sequence if outcome.task_index == 200 else None) for outcome in outcomes]
    settled = await asyncio.gather(*map(store.is_settled, tasks))
    assert [index for index, is_settled in enumerate(settled) if is_settled] == [0, 100, 300, 400, 500]


async def test_a_task_that_is_cancelled_while_it_asks_costs_the_others_nothing(store: OutcomeStore, run: str) -> None:
    asking = [asyncio.create_task(store.is_settled(task(rollout(run, index)))) for index in range(3)]
    await asyncio.sleep(0)
    asking[1].cancel()
    assert await asyncio.gather(*asking, return_exceptions=True) == [False, ANY, False]
    assert asking[1].cancelled()


async def test_who_asks_while_the_server_is_away_is_answered_with_that(
    own_bus: Bus, own_server: EmbeddedServer, run: str
) -> None:
    await own_server.stop()
    with pytest.raises(BusError):
        await OutcomeStore(own_bus).is_settled(task(rollout(run)))


async def test_outcomes_are_read_beyond_a_sequence(store: OutcomeStore, run: str) -> None:
    for number in range(5):
        await put(store, rollout(run, number))
    sequences = [sequence async for sequence, _ in store.read(run)]
    later = await everything(store, run, after=sequences[2])
    assert [outcome.task_index for outcome in later] == [3, 4]


async def test_only_the_run_that_was_asked_for_is_read(store: OutcomeStore, run: str) -> None:
    await put(store, rollout(run))
    await put(store, rollout(f"{run}x"))
    assert [outcome.run for outcome in await everything(store, run)] == [run]


async def test_the_outcomes_of_one_task_are_read(store: OutcomeStore, run: str) -> None:
    for task_index in (1, 11, 2):
        for rollout_index in range(2):
            await put(store, rollout(run, task_index, rollout_index))
    found = [(outcome.task_index, outcome.rollout_index) async for _, outcome in store.read(run, 1)]
    assert found == [(1, 0), (1, 1)]


async def test_a_large_outcome_is_kept_whole(store: OutcomeStore, js: JetStream, bus: Bus, run: str) -> None:
    outcome = rollout(run, response={"output": [], "noise": os.urandom(int(1.5 * bus.max_body_bytes))})
    assert await put(store, outcome)
    found = await store.find(run, 0, 0)
    assert found is not None
    assert len(found.data) < 1000
    assert await everything(store, run) == [outcome]
    assert not await put(store, rollout(run))
    await streams.delete_run(js, run)
    assert await js.count_by_subject(streams.PARTS, f"gym.parts.rollout.{run}.>") == {}


async def test_a_body_of_exactly_one_or_two_parts_is_kept_whole(bus: Bus, run: str) -> None:
    for num_parts in (1, 2):
        body = os.urandom(num_parts * bus.max_body_bytes)
        ref = decode_ref(await blobs.store_call(bus, body, "model"))
        assert ref.parts == num_parts
        assert await blobs.fetch(bus, ref, "call") == body


async def test_an_outcome_that_has_no_wire_form_is_refused(store: OutcomeStore, run: str) -> None:
    with pytest.raises(BadMessage, match=r"\$\.verdict\.n"):
        await put(store, rollout(run, verdict={"n": 2**64}))
    assert await store.find(run, 0, 0) is None


@pytest.mark.parametrize(
    "body", [b"", b"garbage", b"\xff" * 100, b'{"type": "run.v1"}', encode(rollout("other", 9, 9))]
)
async def test_an_outcome_that_nobody_can_read_is_a_failure_that_can_be_replaced(
    store: OutcomeStore, js: JetStream, run: str, body: bytes
) -> None:
    await put(store, rollout(run, 0))
    await js.store(subjects.ROLLOUT.of(run, 1, 2), body)
    await put(store, rollout(run, 2))
    first, unreadable, last = [found async for found in store.read(run)]
    assert (first[1].task_index, last[1].task_index) == (0, 2)
    assert isinstance(unreadable[1], Failure)
    assert (unreadable[1].run, unreadable[1].task_index, unreadable[1].rollout_index) == (run, 1, 2)
    assert f"what is stored at gym.rollouts.{run}.1.2 cannot be read" in unreadable[1].message
    assert await put(store, rollout(run, 1, 2), replaces=unreadable[0])


async def test_an_outcome_whose_parts_are_gone_is_a_failure(
    store: OutcomeStore, js: JetStream, bus: Bus, run: str
) -> None:
    noise = os.urandom(int(1.2 * bus.max_body_bytes))
    await put(store, rollout(run, response={"output": [], "noise": noise}))
    await js.api(f"STREAM.PURGE.{streams.PARTS}", {"filter": f"gym.parts.rollout.{run}.>"})
    (outcome,) = await everything(store, run)
    assert isinstance(outcome, Failure)
    assert "part 0 of 2" in outcome.message


async def test_parts_that_were_changed_are_refused(js: JetStream, bus: Bus, run: str) -> None:
    ref = decode_ref(await blobs.store_call(bus, b"abc", "model"))
    for other in (b"abd", b"ab", b"abcd", b""):
        await js.store(f"{ref.subject}.0", other)
        with pytest.raises(BadMessage, match="not those that were stored"):
            await blobs.fetch(bus, ref, "call")


async def test_a_reference_of_a_reference_is_refused(store: OutcomeStore, bus: Bus, run: str) -> None:
    inner = await blobs.store(bus, encode(rollout(run)), "rollout", RolloutId(run, 0, 0))
    outer = await blobs.store(bus, inner, "rollout", RolloutId(run, 0, 1))
    with pytest.raises(BadMessage, match="reference of another one"):
        await store.decode(outer)


@pytest.mark.parametrize("subject", ["x.0", "0", "0.0.0", "-1.0", "0.1e3"])
async def test_what_is_stored_under_no_rollouts_subject_is_passed_over(
    store: OutcomeStore, js: JetStream, run: str, subject: str
) -> None:
    with contextlib.suppress(BusError):  # the stream may refuse it
        await js.store(f"gym.rollouts.{run}.{subject}", encode(rollout(run)))
    await put(store, rollout(run))
    assert await everything(store, run) == [rollout(run)]


async def test_outcomes_are_stored_once_over_a_restart_of_the_server(
    own_server: EmbeddedServer, own_bus: Bus, kill_server: Kill
) -> None:
    store = OutcomeStore(own_bus)
    outcomes = [rollout("r", number) for number in range(200)]
    storing = [asyncio.create_task(store.put(outcome, replaces=None, patience_s=60)) for outcome in outcomes]
    await until(lambda: any(task.done() for task in storing))
    await kill_server()
    await own_server.start()
    async with asyncio.timeout(DEADLINE_S):
        assert all(await asyncio.gather(*storing))
    found = await everything(store, "r")
    assert sorted(outcome.task_index for outcome in found) == list(range(200))
