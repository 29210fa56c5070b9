"""The profiler resumes from checkpoints, its own and those of others, and reads no more than it has to."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from gymq.bus import Bus, streams
from gymq.bus.queue.outcome_store import OutcomeStore
from gymq.cluster.server import EmbeddedServer
from gymq.execution.services.profiler import Profiler, read_profile
from gymq.protocol import subjects
from gymq.protocol.codec import encode
from gymq.protocol.messages import Failure, FailureClass, Outcome, Stage, VerifiedRollout

Connect = Callable[[str], Awaitable[Bus]]


async def put(bus: Bus, run: str, *tasks: int, **fields: Any) -> None:
    for task in tasks:
        outcome = VerifiedRollout(
            run=run, task_index=task, rollout_index=0, agent="a", row=b"{}", response={}, reward=1.0, **fields
        )
        assert await OutcomeStore(bus).put(outcome, replaces=None, patience_s=20)


async def counted(bus: Bus, run: str) -> int:
    checkpoint = await read_profile(bus.js, run)
    return 0 if checkpoint is None else int(checkpoint.snapshot["agents"]["a"]["rollouts"])


async def test_a_profiler_far_behind_reads_each_outcome_once(
    own_bus: Bus, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(own_bus, run, *range(40))
    decoded = 0
    decode = OutcomeStore.decode

    async def count(self: OutcomeStore, body: bytes) -> Outcome:
        nonlocal decoded
        decoded += 1
        return await decode(self, body)

    monkeypatch.setattr(OutcomeStore, "decode", count)
    await Profiler(own_bus)._read_new()
    assert await counted(own_bus, run) == 40
    assert decoded <= 41  # one more is looked at to see that it is ahead


async def test_a_profiler_that_stops_has_counted_everything_that_was_stored(own_bus: Bus, run: str) -> None:
    profiler = Profiler(own_bus)
    await put(own_bus, run, 0)
    await profiler._read_new()
    await put(own_bus, run, 1, 2)
    await profiler.stop()
    assert await counted(own_bus, run) == 3


async def test_a_run_lasts_until_its_last_rollout_ended_whenever_that_is_counted(own_bus: Bus, run: str) -> None:
    await put(own_bus, run, 0, started_at=1e9, duration_s=5.0)
    await put(own_bus, run, 1, started_at=1e9 + 1.0, duration_s=2.0)
    await Profiler(own_bus)._read_new()
    checkpoint = await read_profile(own_bus.js, run)
    assert checkpoint is not None
    assert checkpoint.at == 1e9 + 5.0


async def test_a_run_that_was_forgotten_continues_from_its_checkpoint(own_bus: Bus, run: str) -> None:
    profiler = Profiler(own_bus)
    await put(own_bus, run, 0, 1)
    await profiler._read_new()
    profiler._runs.clear()
    await put(own_bus, run, 2)
    await profiler._read_new()
    assert await counted(own_bus, run) == 3


async def test_a_profiler_that_was_overtaken_counts_nothing_twice_and_leaves_nothing_out(
    own_server: EmbeddedServer, connect: Connect, run: str
) -> None:
    bus = await connect(own_server.url)
    slow, fast = Profiler(bus), Profiler(await connect(own_server.url))
    await put(bus, run, 0)
    await slow._read_new()
    await put(bus, run, 1, 2)
    await fast._read_new()
    await put(bus, run, 3)
    await slow._read_new()
    await put(bus, run, 4)
    await slow._read_new()
    assert await counted(bus, run) == 5


@pytest.mark.parametrize("damage", [b"", b"\xc1", b"{}", b'{"type": "profile"}'])
async def test_a_checkpoint_that_cannot_be_read_is_counted_again(own_bus: Bus, run: str, damage: bytes) -> None:
    await put(own_bus, run, 0, 1)
    await Profiler(own_bus)._read_new()
    await own_bus.js.store(subjects.PROFILE.of(run), damage)
    assert await read_profile(own_bus.js, run) is None
    await put(own_bus, run, 2)
    profiler = Profiler(own_bus)
    await profiler._read_new()
    assert await counted(own_bus, run) == 3
    await put(own_bus, run, 3)
    await profiler._read_new()
    assert await counted(own_bus, run) == 4


async def test_a_state_of_another_form_is_counted_again(own_bus: Bus, run: str) -> None:
    await put(own_bus, run, 0, 1)
    await Profiler(own_bus)._read_new()
    checkpoint = await read_profile(own_bus.js, run)
    assert checkpoint is not None
    other = encode(msgspec.structs.replace(checkpoint, state=b"another form"))
    await own_bus.js.store(subjects.PROFILE.of(run), other)
    await put(own_bus, run, 2)
    await Profiler(own_bus)._read_new()
    assert await counted(own_bus, run) == 3


async def test_one_damaged_checkpoint_keeps_no_other_run_from_being_counted(own_bus: Bus, run: str) -> None:
    await own_bus.js.store(subjects.PROFILE.of(f"{run}x"), b"")
    await put(own_bus, run, 0)
    await Profiler(own_bus)._read_new()
    assert await counted(own_bus, run) == 1


@pytest.mark.parametrize("every_s", [0.0, 60.0])
@pytest.mark.parametrize("moment", ["_load", "_checkpoint"])
async def test_a_run_that_is_deleted_before_its_first_checkpoint_leaves_nothing_to_the_next_of_its_name(
    own_bus: Bus, run: str, monkeypatch: pytest.MonkeyPatch, moment: str, every_s: float
) -> None:
    profiler = Profiler(own_bus)
    do = getattr(profiler, moment)

    async def delete_first(*arguments: Any, **named: Any) -> Any:
        monkeypatch.setattr(profiler, moment, do)
        await streams.delete_run(own_bus.js, run)
        return await do(*arguments, **named)

    monkeypatch.setattr(profiler, moment, delete_first)
    monkeypatch.setattr("gymq.execution.services.profiler.CHECKPOINT_EVERY_S", every_s)
    await put(own_bus, run, 0, 1)
    await profiler._read_new()
    assert await read_profile(own_bus.js, run) is None
    await put(own_bus, run, 0)
    await profiler._read_new()
    assert await counted(own_bus, run) == 1


async def test_failed_attempts_of_a_deleted_run_are_not_those_of_the_next_of_its_name(own_bus: Bus, run: str) -> None:
    profiler = Profiler(own_bus)
    of_rollout: dict[str, Any] = {"run": run, "task_index": 0, "rollout_index": 0, "agent": "a", "num_rollouts": 1}
    failure = Failure(
        **of_rollout, row=b"{}", failure_class=FailureClass.VERIFIER_FAILED, stage=Stage.VERIFY, message=""
    )
    assert await OutcomeStore(own_bus).put(failure, replaces=None, patience_s=20)
    await profiler._read_new()
    await streams.delete_run(own_bus.js, run)
    await put(own_bus, run, 0, num_rollouts=1)
    await profiler._read_new()
    checkpoint = await read_profile(own_bus.js, run)
    assert checkpoint is not None
    assert checkpoint.snapshot["agents"]["a"]["failed_attempts"] == {}
