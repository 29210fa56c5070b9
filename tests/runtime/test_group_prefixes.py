"""What the rollouts of a group share is stored once, and each of them is read back as it was."""

from __future__ import annotations

import asyncio
import os
from array import array
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from gymq.bus import Bus, streams
from gymq.bus.jetstream import JetStream
from gymq.bus.queue import group_prefixes
from gymq.bus.queue.group_prefixes import GroupPrefixes
from gymq.bus.queue.outcome_store import OutcomeStore
from gymq.protocol import subjects
from gymq.protocol.codec import Decoder, encode
from gymq.protocol.messages import BadMessage, Failure, FailureClass, GroupedOutcome, Unresolved, VerifiedRollout

PROMPT = array("i", range(100_000, 108_000))
QUESTION = "".join(chr(97 + token * token % 23) for token in range(24_000))
SIZE = 4 * len(PROMPT) + len(QUESTION)  # of what they share; neither compresses to nothing

decode_grouped = Decoder(GroupedOutcome)


@pytest.fixture
def store(bus: Bus) -> OutcomeStore:
    return OutcomeStore(bus)


def rollout(run: str, number: int, **members: Any) -> VerifiedRollout:
    row = msgspec.json.encode({"question": QUESTION, "_ng_rollout_index": number})
    return msgspec.structs.replace(
        VerifiedRollout(
            run=run,
            task_index=0,
            rollout_index=number,
            agent="a",
            row=row,
            num_rollouts=8,
            response={"output": [sampled(PROMPT, number)], "model": "m"},
            reward=number / 8,
        ),
        **members,
    )


def sampled(prompt: array[int], number: int) -> dict[str, Any]:
    return {
        "type": "message",
        "prompt_token_ids": prompt,
        "generation_token_ids": array("i", [number, 7]),
        "generation_log_probs": array("f", [-0.5, -number]),
    }


async def put(store: OutcomeStore, *outcomes: VerifiedRollout | Unresolved) -> None:
    for outcome in outcomes:
        assert await store.put(outcome, replaces=None, patience_s=20)


async def stored(js: JetStream, run: str, number: int) -> bytes:
    found = await js.last(streams.ROLLOUTS, subjects.rollout(run, 0, number))
    assert found is not None
    return found.data


async def everything(bus: Bus, run: str) -> list[Any]:
    return [outcome async for _, outcome in OutcomeStore(bus).read(run)]


async def num_parts(js: JetStream, run: str) -> int:
    return len(await js.count_by_subject(streams.PARTS, f"gym.parts.rollout.{run}.>"))


async def test_the_prompt_of_a_group_is_stored_once(store: OutcomeStore, bus: Bus, js: JetStream, run: str) -> None:
    outcomes: list[Any] = [rollout(run, number) for number in range(7)]
    outcomes.append(
        Unresolved(
            run=run,
            task_index=0,
            rollout_index=7,
            agent="a",
            row=outcomes[0].row,
            num_rollouts=8,
            response=outcomes[0].response,
            failure_class=FailureClass.JUDGE_FAILED,
            message="no judge",
        )
    )
    await put(store, *outcomes)
    assert await everything(bus, run) == outcomes
    assert [len(await stored(js, run, number)) < SIZE / 50 for number in range(8)] == [True] * 8
    assert await num_parts(js, run) == 1


async def test_all_attempts_that_race_share_one_prefix(
    shared_url: str, bus: Bus, js: JetStream, run: str, connect: Callable[[str], Awaitable[Bus]]
) -> None:
    stores = [OutcomeStore(await connect(shared_url)) for _ in range(4)]
    outcomes = [rollout(run, number, worker=f"w{number}") for number in range(8)]
    await asyncio.gather(*(put(stores[number % 4], outcome) for number, outcome in enumerate(outcomes)))
    assert sorted(await everything(bus, run), key=lambda outcome: outcome.rollout_index) == outcomes
    assert len({decode_grouped(await stored(js, run, number)).prefix_sha256 for number in range(8)}) == 1


async def test_a_rollout_that_shares_nothing_is_read_too(store: OutcomeStore, bus: Bus, run: str) -> None:
    other = array("i", reversed(PROMPT))
    outcomes = [rollout(run, 0), rollout(run, 1, row=os.urandom(20_000), response={"output": [sampled(other, 1)]})]
    await put(store, *outcomes)
    assert await everything(bus, run) == outcomes


@pytest.mark.parametrize(
    "members", [{"num_rollouts": 1}, {"num_rollouts": None}, {"row": b"{}", "response": {"output": []}}]
)
async def test_an_outcome_without_a_group_or_a_long_prompt_is_stored_whole(
    store: OutcomeStore, bus: Bus, js: JetStream, run: str, members: dict[str, Any]
) -> None:
    await put(store, rollout(run, 0, **members))
    assert await everything(bus, run) == [rollout(run, 0, **members)]
    assert await num_parts(js, run) == 0


async def test_an_outcome_larger_than_a_message_has_the_prefix_of_its_group(
    store: OutcomeStore, bus: Bus, js: JetStream, run: str
) -> None:
    noise = os.urandom(int(1.2 * bus.max_body_bytes))
    outcomes = [rollout(run, number, verdict={"noise": noise}) for number in range(2)]
    await put(store, *outcomes)
    assert await everything(bus, run) == outcomes
    assert await num_parts(js, run) == 5  # two of each, and the prefix


async def test_a_run_that_is_deleted_and_made_again_has_a_prefix_again(
    store: OutcomeStore, bus: Bus, js: JetStream, run: str
) -> None:
    await put(store, rollout(run, 0))
    await streams.delete_run(js, run)
    assert await num_parts(js, run) == 0
    await put(store, rollout(run, 1))
    assert await everything(bus, run) == [rollout(run, 1)]


async def test_an_outcome_is_stored_whole_where_the_prefix_is_none(
    store: OutcomeStore, bus: Bus, js: JetStream, run: str
) -> None:
    await js.store(subjects.group_prefix(run, 0), b"no prefix")
    await put(store, rollout(run, 0))
    assert await everything(bus, run) == [rollout(run, 0)]


async def test_a_prefix_that_was_replaced_or_removed_is_refused(
    store: OutcomeStore, bus: Bus, js: JetStream, run: str
) -> None:
    await put(store, rollout(run, 0), rollout(f"{run}x", 0, row=os.urandom(20_000)))
    other = await js.last(streams.PARTS, subjects.group_prefix(f"{run}x", 0))
    assert other is not None
    await js.store(subjects.group_prefix(run, 0), other.data)
    (replaced,) = await everything(bus, run)
    await js.api(f"STREAM.PURGE.{streams.PARTS}", {"filter": subjects.group_prefix(run, 0)})
    (removed,) = await everything(bus, run)
    assert isinstance(replaced, Failure)
    assert "is not the one that it was compressed after" in replaced.message
    assert isinstance(removed, Failure)
    assert "is missing" in removed.message
    assert removed.retryable


async def test_an_outcome_beside_the_prefix_of_another_run_is_refused(
    store: OutcomeStore, js: JetStream, run: str
) -> None:
    await put(store, rollout(f"{run}x", 0))
    theirs = decode_grouped(await stored(js, f"{run}x", 0))
    prefix = await js.last(streams.PARTS, subjects.group_prefix(f"{run}x", 0))
    assert prefix is not None
    await js.store(subjects.group_prefix(run, 0), prefix.data)
    with pytest.raises(BadMessage, match="beside the prefix of another group"):
        await store.decode(encode(msgspec.structs.replace(theirs, run=run)))


@pytest.mark.parametrize("frame", [b"", b"no frame", encode(rollout("r", 0))])
async def test_a_frame_that_is_damaged_is_refused(store: OutcomeStore, js: JetStream, run: str, frame: bytes) -> None:
    await put(store, rollout(run, 0))
    grouped = decode_grouped(await stored(js, run, 0))
    with pytest.raises(BadMessage, match="compressed body"):
        await store.decode(encode(msgspec.structs.replace(grouped, frame=frame)))


async def test_prefixes_that_were_not_used_lately_are_forgotten(
    bus: Bus, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_prefixes, "KEPT_BYTES", 3 * SIZE)
    prefixes = GroupPrefixes(bus)
    for task_index in range(5):
        outcome = rollout(run, 0, task_index=task_index)
        grouped = await prefixes.grouped(outcome, encode(outcome))
        assert grouped is not None
        assert await prefixes.whole(decode_grouped(grouped)) == encode(outcome)
    assert list(prefixes._kept) == [subjects.group_prefix(run, task_index) for task_index in (3, 4)]
