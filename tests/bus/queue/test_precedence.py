"""The priority and the share of a run reach its calls, and the calls that are made for these."""

from __future__ import annotations

import asyncio

import pytest

from gymq.authoring import CurrentCall, Precedence, current_call
from gymq.bus import Bus
from gymq.bus.pull import Delivery
from gymq.bus.queue.steering import steer
from gymq.bus.queue.task_queue import TaskQueue
from gymq.bus.rpc import serving
from gymq.bus.rpc.calls import Calls
from gymq.execution.model_runner import BusModels
from gymq.protocol import subjects
from gymq.protocol.messages import Generate, Generated, Message, Priority, Task
from gymq.testing import reply
from tests.support.scripted_replica import ScriptedReplica, ask, call, decode, noise
from tests.support.waiting import DEADLINE_S, until

from .test_task_queue import queue_tasks

URGENT = Precedence(Priority.URGENT)


async def begin(calls: Calls, subject: str, rollout: str, precedence: Precedence) -> asyncio.Task[object]:
    """Begin a call of a rollout whose run has a precedence."""
    current_call.set(CurrentCall(rollout, float("inf"), precedence))
    return asyncio.create_task(call(calls, subject, ask(rollout, wait=True)))


async def test_an_urgent_call_is_taken_before_those_that_wait(bus: Bus, other_bus: Bus, run: str) -> None:
    replica = ScriptedReplica(other_bus, f"{run}-w")
    await replica.serve(run, limit=1)
    calls = Calls(bus)
    begun = [await begin(calls, run, f"batch/{number}/0", Precedence()) for number in range(20)]
    await until(lambda: replica.service.load == 20)
    begun.append(await begin(calls, run, "evaluation/0/0", URGENT))
    await until(lambda: replica.service.load == 21)
    replica.go.set()
    await asyncio.gather(*begun)
    assert replica.started[1] == "evaluation/0/0"


async def test_a_call_that_is_a_blob_is_taken_by_the_class_of_its_run(bus: Bus, other_bus: Bus, run: str) -> None:
    replica = ScriptedReplica(other_bus, f"{run}-w")
    await replica.serve(f"gym.model.{run}", limit=1)
    calls = Calls(bus)
    begun = [await begin(calls, f"gym.model.{run}", f"batch/{number}/0", Precedence()) for number in range(20)]
    await until(lambda: replica.service.load == 20)
    current_call.set(CurrentCall("evaluation", float("inf"), URGENT))
    large = ask("evaluation/0/0", padding=noise(2 * bus.max_body_bytes))
    begun.append(asyncio.create_task(call(calls, f"gym.model.{run}", large)))
    await until(lambda: replica.service.load == 21)
    replica.go.set()
    await asyncio.gather(*begun)
    assert replica.started[1] == "evaluation/0/0"


async def test_an_urgent_call_finds_a_full_worker_that_takes_no_others(
    bus: Bus, other_bus: Bus, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "MOST_WAITING", 4)
    replica = ScriptedReplica(other_bus, f"{run}-w")
    await replica.serve(run, limit=1)
    calls = Calls(bus)
    begun = [await begin(calls, run, f"batch/{number}/0", Precedence()) for number in range(5)]
    await until(lambda: replica.service.load == 5)
    await other_bus.flush()
    begun.append(await begin(calls, run, "batch/5/0", Precedence()))
    await until(lambda: any(open_call.waits_for for open_call in calls.open._open))
    begun.append(await begin(calls, run, "evaluation/0/0", URGENT))
    await until(lambda: replica.service.load == 6)
    replica.go.set()
    await asyncio.gather(*begun)
    assert [replica.started[1], replica.started[-1]] == ["evaluation/0/0", "batch/5/0"]


async def test_a_retuned_run_has_another_precedence_from_the_next_call_on(bus: Bus, run: str) -> None:
    await queue_tasks(bus, run, 1)
    working: list[Precedence] = []
    go = asyncio.Event()

    async def handle(task: Task, delivery: Delivery) -> None:
        working.append(current_call.get().precedence)
        await go.wait()
        await delivery.ack()

    queue = TaskQueue(bus, run, 1, handle)
    await queue.start()
    try:
        await until(lambda: len(working) == 1)
        assert working == [Precedence(Priority.NORMAL, 1.0)]
        await steer(bus, run, priority=Priority.URGENT, share=4.0)
        await until(lambda: working == [Precedence(Priority.URGENT, 4.0)])
        go.set()
    finally:
        await queue.drain(DEADLINE_S)


async def test_a_judge_is_asked_with_the_precedence_of_the_rollout(bus: Bus, other_bus: Bus, run: str) -> None:
    verifiers = ScriptedReplica(bus, f"{run}-v")
    judges = ScriptedReplica(other_bus, f"{run}-j")
    asked: list[Generate] = []

    async def judge(_subject: str, request: Generate) -> Message:
        asked.append(request)
        return Generated(response=reply("yes"))

    async def verify() -> Message:
        return Generated(response=await BusModels(Calls(bus)).respond(run, {"input": "?"}))

    await judges.server.start()
    await judges.server.serve(run, subjects.JUDGE.of(run), decode, judge, group=subjects.MODEL_GROUP, limit=8)
    await other_bus.flush()
    verifiers.action = verify
    await verifiers.serve(run)
    calls = Calls(other_bus)
    for precedence in (Precedence(), Precedence(Priority.URGENT, 2.0)):
        current_call.set(CurrentCall("r/0/0", float("inf"), precedence))
        await call(calls, run, ask("r/0/0", action=True))
    assert [(request.priority, request.share) for request in asked] == [(Priority.NORMAL, 1.0), (Priority.URGENT, 2.0)]
