"""How many outcomes a run has: what is stored at that moment, whatever the profiler knows."""

import os
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from gymq.bus import Bus, BusError, streams
from gymq.bus.jetstream import Stored
from gymq.bus.queue.client import QueueClient
from gymq.bus.queue.outcome_store import OutcomeStore
from gymq.cluster.server import EmbeddedServer
from gymq.execution.services.profiler import Profiler, read_profile
from gymq.protocol import subjects
from gymq.protocol.codec import encode
from gymq.protocol.messages import Failure, FailureClass, Outcome, Run, Stage, Task, Unresolved, VerifiedRollout
from gymq.runs.stored_runs import Runs

Connect = Callable[[str], Awaitable[Bus]]


def common(run: str, task: int) -> dict[str, Any]:
    return {"run": run, "task_index": task, "agent": "a", "row": b"{}"}


def rollout(run: str, task: int, index: int = 0, text: str = "") -> VerifiedRollout:
    response = {"output": [], "text": text}
    return VerifiedRollout(**common(run, task), rollout_index=index, response=response, reward=float(task % 2))


def unresolved(run: str, task: int) -> Unresolved:
    why: dict[str, Any] = {"failure_class": FailureClass.JUDGE_FAILED, "message": "asleep"}
    return Unresolved(**common(run, task), rollout_index=0, response={"output": []}, **why)


def failure(run: str, task: int) -> Failure:
    why: dict[str, Any] = {"failure_class": FailureClass.MODEL_FAILED, "stage": Stage.MODEL, "message": "no"}
    return Failure(**common(run, task), rollout_index=0, **why)


async def put(bus: Bus, *outcomes: Outcome, replaces: int | None = None) -> None:
    for outcome in outcomes:
        assert await OutcomeStore(bus).put(outcome, replaces=replaces, patience_s=20)


async def replace(bus: Bus, outcome: Outcome) -> None:
    before = await OutcomeStore(bus).find(outcome.run, outcome.task_index, outcome.rollout_index)
    assert before is not None
    await put(bus, outcome, replaces=before.sequence)


async def profile(bus: Bus) -> None:
    """Bring the checkpoints of all runs up to date, as the profiler does once a second."""
    await Profiler(bus)._read_new()


async def test_a_run_without_outcomes_has_none(bus: Bus, run: str) -> None:
    assert await Runs(bus).num_stored(run) == 0


async def test_outcomes_of_every_kind_count_where_no_profiler_runs(bus: Bus, run: str) -> None:
    await put(bus, rollout(run, 0), unresolved(run, 1), failure(run, 2))
    assert await read_profile(bus.js, run) is None
    assert await Runs(bus).num_stored(run) == 3


async def test_other_runs_do_not_count_even_with_a_name_that_begins_alike(bus: Bus, run: str) -> None:
    for index in range(3):
        await put(bus, rollout(f"{run}-2", 0, index), rollout(run, 0, index), rollout(f"{run}_", 1, index))
    await put(bus, rollout(f"{run}-2", 5))
    runs = Runs(bus)
    assert [await runs.num_stored(name) for name in (run, f"{run}-2", f"{run}_", run[:-1])] == [3, 4, 3, 0]


async def test_what_took_the_place_of_a_failure_counts_once(bus: Bus, run: str) -> None:
    await put(bus, unresolved(run, 0), rollout(run, 1), failure(run, 2))
    await profile(bus)
    await replace(bus, rollout(run, 0))
    await replace(bus, failure(run, 2))
    assert await Runs(bus).num_stored(run) == 3
    await replace(bus, rollout(run, 2))
    assert await Runs(bus).num_stored(run) == 3
    await profile(bus)
    assert await Runs(bus).num_stored(run) == 3


async def test_what_came_after_the_checkpoint_counts(bus: Bus, run: str) -> None:
    await put(bus, rollout(run, 0), rollout(run, 1))
    await profile(bus)
    await put(bus, rollout(run, 2), failure(run, 3))
    assert await Runs(bus).num_stored(run) == 4


async def test_a_deleted_run_counts_from_nothing_again(bus: Bus, run: str) -> None:
    await put(bus, rollout(run, 0), rollout(run, 1), rollout(f"{run}-2", 0))
    await profile(bus)
    await streams.delete_run(bus.js, run)
    assert await Runs(bus).num_stored(run) == 0
    await put(bus, rollout(run, 1))
    assert await Runs(bus).num_stored(run) == 1
    assert await Runs(bus).num_stored(f"{run}-2") == 1


async def test_the_count_is_right_over_many_blocks_and_after_a_restart(
    own_server: EmbeddedServer, connect: Connect, kill_server: Callable[[], Awaitable[None]], run: str
) -> None:
    """The server keeps blocks of at most 8 MB; here runs share blocks, and outcomes of all of them were replaced."""
    bus = await connect(own_server.url)
    for task in range(6):
        await put(
            bus, rollout(run, task, text=os.urandom(1 << 20).hex()), rollout(f"{run}-2", task), failure(run, 100 + task)
        )
        await put(bus, unresolved(run, 200 + task))
    for task in range(0, 6, 2):
        await replace(bus, rollout(run, 100 + task, text=os.urandom(1 << 20).hex()))
        await replace(bus, rollout(run, 200 + task))
    runs = Runs(bus)
    info = await bus.js.api(f"STREAM.INFO.{streams.ROLLOUTS}")
    assert info["state"]["bytes"] > 8 << 20
    assert (await runs.num_stored(run), await runs.num_stored(f"{run}-2")) == (18, 6)
    await kill_server()
    await own_server.start()
    runs = Runs(await connect(own_server.url))
    assert (await runs.num_stored(run), await runs.num_stored(f"{run}-2")) == (18, 6)


async def test_a_count_that_the_server_cannot_give_is_an_error_and_not_zero(
    own_server: EmbeddedServer, own_bus: Bus, run: str
) -> None:
    await put(own_bus, rollout(run, 0))
    await own_bus.js.api(f"STREAM.DELETE.{streams.ROLLOUTS}")
    with pytest.raises(BusError, match="the stream ROLLOUTS is not available"):
        await Runs(own_bus).num_stored(run)


async def test_the_count_is_that_of_the_subjects(bus: Bus, run: str) -> None:
    await put(bus, *(rollout(run, task, index) for task in range(20) for index in range(task % 4)))
    counts = await bus.js.count_by_subject(streams.ROLLOUTS, subjects.ROLLOUT.below(run))
    assert await Runs(bus).num_stored(run) == sum(counts.values()) == 30


async def test_a_record_that_cannot_be_read_hides_no_other_run(own_bus: Bus, run: str) -> None:
    js = own_bus.js
    await js.store(subjects.RUN.of(f"{run}x"), b"")
    await js.store(subjects.RUN.of(run), encode(Run(run=run, created_at=1.0)))
    runs = Runs(own_bus)
    assert [record.run for record in await runs.records()] == [run]
    assert await runs.record(f"{run}x") is None


async def test_the_newest_run_comes_first(own_bus: Bus) -> None:
    for name, created_at in (("old", 1.0), ("new", 3.0), ("between", 2.0)):
        await own_bus.js.store(subjects.RUN.of(name), encode(Run(run=name, created_at=created_at)))
    assert [record.run for record in await Runs(own_bus).records()] == ["new", "between", "old"]


async def test_queued_tasks_of_another_configuration_are_removed_unless_they_are_resumed(own_bus: Bus) -> None:
    queue, runs = QueueClient(own_bus), Runs(own_bus)
    known = {"other": "rows/before", "resumed": "rows/before", "same": "rows/now", "program": ""}
    for name, fingerprint in known.items():
        await own_bus.js.store(subjects.RUN.of(name), encode(Run(run=name, created_at=1.0, fingerprint=fingerprint)))
        await queue.submit(Task(run=name, task_index=0, rollout_index=0, agent="a", row=b"{}", timeout_s=9.0))
    await runs.delete_tasks_of_others("now", resumed="resumed")
    assert [name for name in known if await queue.num_queued(name)] == ["resumed", "same", "program"]


async def test_a_record_that_changes_while_it_is_changed_keeps_both_changes(bus: Bus, run: str) -> None:
    subject = subjects.RUN.of(run)
    await bus.js.store(subject, encode(Run(run=run, created_at=1.0)))
    resumed = [encode(Run(run=run, created_at=1.0, num_rollouts=8))]

    async def last(stream: str, of: str) -> Stored | None:
        found = await read(stream, of)
        if resumed:
            await bus.js.store(subject, resumed.pop())
        return found

    read, bus.js.last = bus.js.last, last  # type: ignore[assignment, method-assign]
    await Runs(bus).change(run, lambda old: msgspec.structs.replace(old or Run(run=run, created_at=0.0), note="x"))
    assert await Runs(bus).record(run) == Run(run=run, created_at=1.0, num_rollouts=8, note="x")
