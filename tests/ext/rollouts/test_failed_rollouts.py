"""`gymq rollouts --failed`: every outcome without a reward, and no outcome read that need not be."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from gymq.bus import Bus
from gymq.bus.queue.outcome_store import OutcomeStore
from gymq.execution.services.profiler import Profiler
from gymq.protocol.messages import Failure, FailureClass, Outcome, Stage, VerifiedRollout
from tests.cli.conftest import Command


def good(run: str, task: int) -> VerifiedRollout:
    return VerifiedRollout(
        run=run, task_index=task, rollout_index=0, agent="a", row=b"{}", response={"output": []}, reward=1.0
    )


def bad(run: str, task: int) -> Failure:
    return Failure(
        run=run,
        task_index=task,
        rollout_index=0,
        agent="a",
        row=b"{}",
        failure_class=FailureClass.MODEL_FAILED,
        stage=Stage.MODEL,
        message="no GPU",
    )


Put = Callable[..., None]


@pytest.fixture
def put(shared_url: str, monkeypatch: pytest.MonkeyPatch, gymq: Command) -> Put:
    """Stores outcomes, each in the place of the failure that is there; then, if asked to, profiles."""
    monkeypatch.setenv("GYMQ_NATS", shared_url)

    async def store(bus: Bus, outcomes: tuple[Outcome, ...], profiled: bool) -> None:
        outcome_store = OutcomeStore(bus)
        for outcome in outcomes:
            before = await outcome_store.find(outcome.run, outcome.task_index, outcome.rollout_index)
            replaces = None if before is None else before.sequence
            assert await outcome_store.put(outcome, replaces=replaces, patience_s=20)
        if profiled:
            await Profiler(bus)._read_new()

    async def connected(use: Callable[[Bus], Awaitable[None]]) -> None:
        bus = await Bus.connect(shared_url, role="test", name="put")
        await use(bus)
        await bus.close()

    def call(*outcomes: Outcome, profiled: bool) -> None:
        asyncio.run(connected(lambda bus: store(bus, outcomes, profiled)))

    return call


def failed(gymq: Command, run: str, *options: Any) -> list[int]:
    called = gymq("rollouts", "--run", run, "--failed", "--json", *options)
    assert called.status == 0
    return [json.loads(line)["task_index"] for line in called.out.splitlines()]


@pytest.mark.parametrize("profiled", [True, False])
def test_all_are_listed_in_the_order_they_came(gymq: Command, put: Put, run: str, profiled: bool) -> None:
    put(good(run, 0), bad(run, 1), good(run, 2), bad(run, 3), good(run, 4), profiled=profiled)
    assert failed(gymq, run) == [1, 3]
    assert failed(gymq, run, "--limit", 1) == [1]
    assert failed(gymq, run, "--task", 3) == [3]


def test_those_that_came_after_the_checkpoint_are_listed(gymq: Command, put: Put, run: str) -> None:
    put(good(run, 0), bad(run, 1), profiled=True)
    put(bad(run, 2), good(run, 3), bad(run, 4), profiled=False)
    assert failed(gymq, run) == [1, 2, 4]


def test_one_that_has_a_reward_by_now_is_not_listed(gymq: Command, put: Put, run: str) -> None:
    put(bad(run, 0), bad(run, 1), good(run, 2), profiled=True)
    put(good(run, 0), bad(run, 1), bad(run, 5), profiled=False)
    assert failed(gymq, run) == [1, 5]
    put(good(run, 1), good(run, 5), profiled=True)
    called = gymq("rollouts", "--run", run, "--failed")
    assert called.status == 0
    assert f"run {run} has no failed rollouts" in called.err


def test_nothing_is_read_behind_the_last_of_them(
    gymq: Command, put: Put, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(good(run, 0), bad(run, 1), *(good(run, task) for task in range(2, 20)), profiled=True)
    read: list[bytes] = []
    decode = OutcomeStore.decode

    async def note(self: OutcomeStore, body: bytes) -> Outcome:
        read.append(body)
        return await decode(self, body)

    monkeypatch.setattr(OutcomeStore, "decode", note)
    assert failed(gymq, run) == [1]
    assert len(read) == 2
    put(good(run, 1), profiled=True)
    read.clear()
    assert failed(gymq, run) == []
    assert not read


def test_the_attempts_of_earlier_starts_and_of_this_one_are_counted(gymq: Command, put: Put, run: str) -> None:
    put(msgspec.structs.replace(good(run, 7), row=b'{"_ng_attempt_index": 1}', attempt=2), profiled=False)
    (line,) = [line for line in gymq("rollouts", "--run", run).out.splitlines() if line.split()[:1] == ["7"]]
    assert line.split()[:3] == ["7", "0", "4"]
    assert gymq("rollouts", "--run", run, "--json").json["attempt"] == 3
