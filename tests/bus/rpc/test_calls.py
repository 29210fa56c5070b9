"""Calls: always an answer, soon, whatever happens to the worker, the server or the caller."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from nats.aio.msg import Msg

from gymq.bus import Bus, blobs
from gymq.bus.discovery import ServiceListing, first_to_answer
from gymq.bus.rpc import calls as calls_module
from gymq.bus.rpc import tries
from gymq.bus.rpc.backlog import NoWorker
from gymq.bus.rpc.calls import Calls
from gymq.cluster.server import EmbeddedServer
from gymq.failures import RETRIES, CancelReason, RolloutError
from gymq.protocol import subjects
from gymq.protocol.codec import Decoder, encode
from gymq.protocol.messages import (
    Accepted,
    BlobRef,
    Call,
    Fail,
    FailureClass,
    Generate,
    Generated,
    Message,
    Pong,
    Seed,
    Verified,
)
from tests.support.scripted_replica import ScriptedReplica, ask, call, frames, last_frame, limit_patience, noise
from tests.support.waiting import DEADLINE_S, until

Kill = Callable[[], Awaitable[None]]
Connect = Callable[[str], Awaitable[Bus]]
Spawn = Callable[..., Awaitable[asyncio.subprocess.Process]]

decode_frame = Decoder(Accepted, Fail, Generated)


@pytest.fixture
def calls(bus: Bus) -> Calls:
    return Calls(bus)


@pytest.fixture
async def replica(other_bus: Bus, run: str) -> ScriptedReplica:
    """One replica that serves the subject `<run>`."""
    replica = ScriptedReplica(other_bus, f"{run}-w")
    await replica.serve(run)
    return replica


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Notices sooner that a worker is gone."""
    monkeypatch.setattr(tries, "ACCEPT_TIMEOUT_S", 1.0)
    monkeypatch.setattr(tries, "PROBE_EVERY_S", 0.2)
    limit_patience(monkeypatch, 0.5)


@pytest.fixture
async def spawn(shared_url: str) -> AsyncIterator[Spawn]:
    """Starts worker processes; whatever is left of them is killed."""
    started = []

    async def start(worker: str, subject: str, group: str = "g") -> asyncio.subprocess.Process:
        script = Path(__file__).with_name("worker_process.py")
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(script), shared_url, worker, subject, group, stdout=asyncio.subprocess.PIPE
        )
        started.append(process)
        await reads(process, "ready")
        return process

    yield start
    for process in started:
        if process.returncode is None:
            process.kill()
        await process.wait()


def pings(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Count how often a worker that answers is sought."""
    found: list[Any] = []
    seek = first_to_answer

    async def counted(*of: Any, **named: Any) -> Any:
        found.append(await seek(*of, **named))
        return found[-1]

    monkeypatch.setattr(calls_module, "first_to_answer", counted)
    return lambda: len(found)


async def reads(process: asyncio.subprocess.Process, line: str) -> None:
    assert process.stdout is not None
    async with asyncio.timeout(DEADLINE_S):
        assert (await process.stdout.readline()).decode().strip() == line


async def test_a_fast_reply_is_not_accepted_first(bus: Bus, replica: ScriptedReplica, run: str) -> None:
    (reply,) = await frames(bus, run, encode(ask()), 1)
    assert isinstance(decode_frame(reply), Generated)


async def test_a_slow_call_is_accepted_before_it_is_answered(bus: Bus, replica: ScriptedReplica, run: str) -> None:
    accepted, reply = (decode_frame(data) for data in await frames(bus, run, encode(ask(sleep_s=0.5)), 2))
    assert accepted == Accepted(role=replica.server.bus.role, worker=replica.worker)
    assert isinstance(reply, Generated)


async def test_a_thousand_calls_at_once_are_answered(calls: Calls, replica: ScriptedReplica, run: str) -> None:
    requests = [ask(f"{number}", sleep_s=0.3 * (number % 3)) for number in range(1000)]
    await asyncio.gather(*(call(calls, run, request) for request in requests))
    assert sorted(replica.finished, key=int) == [str(number) for number in range(1000)]


async def test_nothing_is_left_behind_by_calls_that_ended(calls: Calls, replica: ScriptedReplica, run: str) -> None:
    before = len(asyncio.all_tasks())
    working = [asyncio.create_task(call(calls, run, ask(sleep_s=0.5))) for _ in range(20)]
    waiting = [asyncio.create_task(call(calls, run, ask(wait=True))) for _ in range(20)]
    await until(lambda: len(replica.started) == 40)
    await asyncio.gather(*working)
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
    await until(lambda: len(replica.cancelled) == 20)
    await until(lambda: len(asyncio.all_tasks()) == before)
    assert replica.service.load == 0
    assert not replica.server.jobs.all


async def test_a_call_whose_worker_is_killed_is_made_by_another(
    calls: Calls, replica: ScriptedReplica, run: str, spawn: Spawn, eager: None
) -> None:
    await replica.service.leave()
    process = await spawn(f"{run}-p", run)
    calling = asyncio.create_task(call(calls, run, ask("x", timeout_s=3600, sleep_s=3600)))
    await reads(process, "x")
    survivor = ScriptedReplica(replica.bus, f"{run}-s")
    await survivor.serve(run)
    await until(lambda: calls._tries._of_worker)  # it was accepted
    process.kill()
    await until(lambda: survivor.started)
    calling.cancel()
    await until(lambda: survivor.cancelled)


async def test_a_call_whose_only_worker_is_killed_fails_within_seconds(
    calls: Calls, run: str, spawn: Spawn, eager: None
) -> None:
    process = await spawn(f"{run}-p", run)
    calling = asyncio.create_task(call(calls, run, ask("x", timeout_s=3600, sleep_s=3600)))
    await reads(process, "x")
    process.kill()
    with pytest.raises(NoWorker, match=f"no worker serves {run}"):
        await calling


async def test_a_session_whose_worker_is_killed_is_lost_within_seconds(
    calls: Calls, run: str, spawn: Spawn, eager: None
) -> None:
    subject = subjects.SESSION.of(f"{run}-p", "s")
    process = await spawn(f"{run}-p", subject, "-")
    calling = asyncio.create_task(call(calls, subject, ask("x", timeout_s=3600, sleep_s=3600)))
    await reads(process, "x")
    process.kill()
    with pytest.raises(RolloutError, match="is gone") as lost:
        await calling
    assert lost.value.failure_class is FailureClass.SESSION_LOST


async def test_a_frozen_worker_is_noticed_and_another_takes_the_call(
    calls: Calls, replica: ScriptedReplica, run: str, spawn: Spawn, eager: None
) -> None:
    await replica.service.leave()
    process = await spawn(f"{run}-p", run)
    calling = asyncio.create_task(call(calls, run, ask("x", timeout_s=3600, sleep_s=2.0)))
    await reads(process, "x")
    await until(lambda: calls._tries._of_worker)  # it was accepted
    os.kill(process.pid, signal.SIGSTOP)
    survivor = ScriptedReplica(replica.bus, f"{run}-s")
    # Alone from now on: a frozen member of a queue group is still given calls, until the server cuts it off.
    await survivor.serve(run, group="")
    assert (await calling)["worker"] == f"{run}-s"


@pytest.mark.parametrize(
    ("group_of", "kind"),
    [(subjects.SEED.of, "resources"), (subjects.STATELESS.of, "resources"), (subjects.JUDGE.of, "models")],
)
async def test_calls_leave_a_frozen_worker_of_a_group_for_one_that_answers(
    calls: Calls,
    bus: Bus,
    other_bus: Bus,
    run: str,
    group_of: Callable[[str], str],
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
    short_pauses: None,
) -> None:
    monkeypatch.setattr(tries, "ACCEPT_TIMEOUT_S", 0.5)
    subject = group_of(run)
    taken: list[Msg] = []

    async def ignore(message: Msg) -> None:
        taken.append(message)

    await bus.subscribe(subject, ignore, group="g")
    replica = ScriptedReplica(other_bus, f"{run}-w")
    await replica.serve(subject)
    listing = ServiceListing(
        other_bus, name=run, worker=replica.worker, kind=kind, implementation="x", subjects=[subject], stats=dict
    )
    await listing.start()
    await other_bus.flush()
    answers = await asyncio.gather(*(call(calls, subject, ask(f"{number}", timeout_s=3600)) for number in range(100)))
    assert {answer["worker"] for answer in answers} == {replica.worker}
    assert taken
    assert len(taken) < 100  # each call once at most
    assert len(set(replica.finished)) == 100

    await replica.service._unsubscribe()  # as it does when it is full
    del taken[:]
    asked = asyncio.create_task(call(calls, subject, ask("later", timeout_s=3600)))
    number_of = pings(monkeypatch)
    await until(lambda: number_of() > 2)
    await replica.service.join()
    assert (await asked)["worker"] == replica.worker
    assert len(taken) == 1


async def test_a_call_that_nobody_accepts_is_lost(
    calls: Calls, bus: Bus, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tries, "ACCEPT_TIMEOUT_S", 0.1)

    async def ignore(message: Msg) -> None: ...

    await bus.subscribe(run, ignore)
    with pytest.raises(RolloutError, match=f"no worker accepted the call on {run}") as error:
        await call(calls, run, ask(timeout_s=3600))
    assert error.value.failure_class is FailureClass.WORKER_LOST


async def test_a_session_whose_worker_accepts_nothing_is_lost(
    calls: Calls, bus: Bus, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is frozen, or its machine is cut off; the rollout can have another session."""
    monkeypatch.setattr(tries, "ACCEPT_TIMEOUT_S", 0.1)
    subject = subjects.SESSION.of(f"{run}-p", "s")

    async def ignore(message: Msg) -> None: ...

    await bus.subscribe(subject, ignore)
    with pytest.raises(RolloutError, match="does not answer") as lost:
        await call(calls, subject, ask(timeout_s=3600))
    assert lost.value.failure_class is FailureClass.SESSION_LOST


async def test_without_a_worker_the_call_did_not_run(calls: Calls, run: str, eager: None) -> None:
    with pytest.raises(NoWorker) as error:
        await call(calls, run, ask(timeout_s=3600))
    assert (error.value.failure_class, error.value.retryable) == (FailureClass.NO_WORKER, True)


async def test_a_worker_that_comes_soon_gets_the_call(calls: Calls, other_bus: Bus, run: str) -> None:
    calling = asyncio.create_task(call(calls, run, ask()))
    await asyncio.sleep(0.3)
    await ScriptedReplica(other_bus, f"{run}-w").serve(run)
    assert (await calling)["worker"] == f"{run}-w"


async def test_cancelling_a_call_stops_its_handler(calls: Calls, replica: ScriptedReplica, run: str) -> None:
    calling = asyncio.create_task(call(calls, run, ask("x", wait=True)))
    await until(lambda: replica.started)
    await until(lambda: calls._tries._of_worker)  # it was accepted
    calling.cancel()
    await until(lambda: replica.cancelled == ["x"])


async def test_a_call_that_is_accepted_after_nobody_waits_any_more_is_stopped(
    calls: Calls, replica: ScriptedReplica, run: str
) -> None:
    calling = asyncio.create_task(call(calls, run, ask("x", wait=True)))
    await until(lambda: replica.started)
    calling.cancel()  # before `Accepted` is sent
    await until(lambda: replica.cancelled == ["x"])


@pytest.mark.parametrize("is_accepted", [True, False])
async def test_a_call_in_a_session_that_another_process_will_repeat_is_not_stopped(
    calls: Calls, bus: Bus, other_bus: Bus, run: str, is_accepted: bool
) -> None:
    replica = ScriptedReplica(other_bus, f"{run}-w")
    subject = subjects.SESSION.of(replica.worker, "s")
    await replica.serve(subject, group="")
    calling = asyncio.create_task(call(calls, subject, ask("x", wait=True)))
    await until(lambda: replica.started)
    if is_accepted:
        await until(lambda: calls._tries._of_worker)
    calling.cancel(CancelReason.HANDED_OVER)
    await until(lambda: replica.server.jobs._accepted)
    for connection in (other_bus, bus, bus, other_bus):  # what is sent for it has arrived, and what that leads to
        await connection.flush()
    replica.go.set()
    await until(lambda: replica.finished or replica.cancelled)
    assert replica.finished == ["x"]


async def test_at_the_deadline_the_caller_is_told_and_the_handler_stopped(
    calls: Calls, replica: ScriptedReplica, run: str
) -> None:
    with pytest.raises(RolloutError) as error:
        await call(calls, run, ask("x", timeout_s=1.5, wait=True))
    assert error.value.failure_class is FailureClass.DEADLINE_EXCEEDED
    await until(lambda: replica.cancelled == ["x"])


async def test_a_handler_stops_at_the_deadline_though_its_caller_is_gone(
    bus: Bus, replica: ScriptedReplica, run: str
) -> None:
    _, reply = await frames(bus, run, encode(ask("x", timeout_s=1.5, wait=True)), 2)
    assert decode_frame(reply).failure_class is FailureClass.DEADLINE_EXCEEDED
    assert replica.cancelled == ["x"]


async def test_a_handler_knows_how_much_time_is_left(calls: Calls, replica: ScriptedReplica, run: str) -> None:
    await call(calls, run, ask(timeout_s=20))
    assert 0 < round(replica.time_left[0], 6) <= 20


async def test_a_repeated_call_has_less_time(calls: Calls, replica: ScriptedReplica, run: str) -> None:
    def saturated() -> None:
        if len(replica.started) < 3:
            raise RolloutError(FailureClass.SATURATED, "full")
        raise RolloutError(FailureClass.MODEL_FAILED, "enough")

    replica.action = saturated
    with pytest.raises(RolloutError, match="enough"):
        await call(calls, run, ask(timeout_s=20, action=True))
    assert replica.time_left == sorted(replica.time_left, reverse=True)
    assert len(replica.time_left) == 3


async def test_a_saturated_worker_is_asked_until_the_deadline(
    calls: Calls, replica: ScriptedReplica, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The last request is answered a second before the deadline; one that is under way at the deadline has no reply.
    known = RETRIES[FailureClass.SATURATED]
    assert known.call is not None
    steady = replace(known.call, first_pause_s=2.0, longest_pause_s=2.0, jitter=0.0)
    monkeypatch.setitem(RETRIES, FailureClass.SATURATED, replace(known, call=steady))

    def saturated() -> None:
        raise RolloutError(FailureClass.SATURATED, "full")

    replica.action = saturated
    with pytest.raises(RolloutError, match="full") as error:
        await call(calls, run, ask(timeout_s=3.0, action=True))
    assert error.value.failure_class is FailureClass.SATURATED
    assert len(replica.started) > 1


async def test_a_reply_that_is_lost_is_noticed_and_the_call_repeated(
    calls: Calls, replica: ScriptedReplica, run: str, eager: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = replica.server.jobs.send

    async def lose_the_first(*arguments: Any) -> None:
        if len(replica.finished) > 1:
            await send(*arguments)

    monkeypatch.setattr(replica.server.jobs, "send", lose_the_first)
    await call(calls, run, ask("x", timeout_s=3600, sleep_s=0.5))
    assert replica.finished == ["x", "x"]


async def test_calls_in_flight_outlive_a_restart_of_the_server(
    own_server: EmbeddedServer, own_bus: Bus, connect: Connect, kill_server: Kill, eager: None
) -> None:
    replica = ScriptedReplica(await connect(own_server.url), "w")
    await replica.serve("x")
    session = ScriptedReplica(await connect(own_server.url), "v")
    await session.serve(subjects.SESSION.of("v"), group="")
    calls = Calls(own_bus)
    working = [
        asyncio.create_task(call(calls, subject, ask(f"{subject}{number}", sleep_s=number / 20)))
        for number in range(40)
        for subject in ("x", subjects.SESSION.of("v", "s"))
    ]
    await until(lambda: any(task.done() for task in working))
    await kill_server()
    late = [asyncio.create_task(call(calls, subject, ask())) for subject in ("x", subjects.SESSION.of("v", "s"))]
    await asyncio.sleep(0.5)
    await own_server.start()
    await asyncio.gather(*working, *late)


async def test_a_session_is_not_lost_because_its_worker_is_back_later_than_its_caller(
    calls: Calls, bus: Bus, other_bus: Bus, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the server restarted, the caller may be connected again before the worker."""
    monkeypatch.setattr(bus, "_reconnected_at", time.monotonic())
    subject = subjects.SESSION.of(run, "s")
    calling = asyncio.create_task(call(calls, subject, ask()))
    await asyncio.sleep(0.2)
    await ScriptedReplica(other_bus, run).serve(subject, group="")
    assert (await calling)["worker"] == run


async def test_large_requests_and_replies_travel_in_parts(
    calls: Calls, bus: Bus, replica: ScriptedReplica, run: str
) -> None:
    size = bus.max_body_bytes + 100_000
    response = await call(calls, run, ask(body=noise(size), size=size))
    assert response["got"] > size
    assert response["noise"] == noise(size)


async def test_the_deadline_of_a_large_request_reaches_the_handler(
    calls: Calls, bus: Bus, replica: ScriptedReplica, run: str
) -> None:
    ref = await blobs.store_call(bus, encode(ask("x", timeout_s=3.0, wait=True)), "model")
    accepted, reply = (decode_frame(data) for data in await frames(bus, run, ref, 2))
    assert isinstance(accepted, Accepted)
    assert reply.failure_class is FailureClass.DEADLINE_EXCEEDED
    assert 0 < round(replica.time_left[0], 6) <= 3.0  # a difference of two times, which are rounded
    assert replica.cancelled == ["x"]


async def test_a_request_whose_parts_are_missing_is_refused(bus: Bus, replica: ScriptedReplica, run: str) -> None:
    ref = Decoder(BlobRef)(await blobs.store_call(bus, b"x", "model"))
    reply = await last_frame(bus, run, encode(msgspec.structs.replace(ref, parts=2)))
    failure = decode_frame(reply)
    assert (failure.failure_class, "part 1 of 2" in failure.message) == (FailureClass.BAD_REQUEST, True)


async def test_a_reference_of_a_reference_is_refused(bus: Bus, replica: ScriptedReplica, run: str) -> None:
    ref = await blobs.store_call(bus, await blobs.store_call(bus, encode(ask()), "model"), "model")
    reply = await last_frame(bus, run, ref)
    assert decode_frame(reply).failure_class is FailureClass.BAD_REQUEST
    assert not replica.started


async def test_a_request_that_has_no_wire_form_is_refused_with_its_path(calls: Calls, run: str) -> None:
    with pytest.raises(RolloutError, match=r"has no wire form: .* at `\$\.params\.n`") as error:
        await call(calls, run, ask(n=2**64))
    assert error.value.failure_class is FailureClass.BAD_REQUEST


@pytest.mark.parametrize("body", [b"", b"\xff", b'{"type": "generated.v1"}', encode(Pong())])
async def test_a_reply_that_nobody_can_read_is_a_failure(calls: Calls, bus: Bus, run: str, body: bytes) -> None:
    async def impostor(message: Msg) -> None:
        await bus.publish(message.reply, body, headers={"x": "y"})

    await bus.subscribe(run, impostor)
    with pytest.raises(RolloutError, match=f"unreadable reply on {run}") as error:
        await call(calls, run, ask(timeout_s=3600))
    assert error.value.failure_class is FailureClass.MODEL_FAILED
    assert error.value.retryable


@pytest.mark.parametrize(
    ("request_", "answer"),
    [(ask(), Verified(reward=1.0)), (Seed(rollout="r", timeout_s=9, row=None), Generated(response={}))],
)
@pytest.mark.parametrize("in_parts", [False, True])
async def test_an_answer_to_another_question_is_a_failure_that_may_be_retried(
    calls: Calls, bus: Bus, run: str, request_: Call, answer: Message, in_parts: bool
) -> None:
    body = await blobs.store_call(bus, encode(answer), "agent") if in_parts else encode(answer)

    async def impostor(message: Msg) -> None:
        await bus.publish(message.reply, body)

    await bus.subscribe(run, impostor)
    with pytest.raises(RolloutError, match=f"{type(answer).__name__} does not answer") as error:
        await calls.call(run, request_)
    model = isinstance(request_, Generate)
    assert error.value.failure_class is (FailureClass.MODEL_FAILED if model else FailureClass.VERIFIER_FAILED)
    assert error.value.retryable


async def test_two_workers_that_accept_the_same_call_leave_no_probe_behind(calls: Calls, bus: Bus, run: str) -> None:
    before = len(asyncio.all_tasks())

    async def twice(message: Msg) -> None:
        for worker in (f"{run}-a", f"{run}-b"):
            await bus.publish(message.reply, encode(Accepted(role="test", worker=worker)))
        await bus.publish(message.reply, encode(Generated(response={})))

    subscription = await bus.subscribe(run, twice)
    await call(calls, run, ask())
    await bus.unsubscribe(subscription)
    await until(lambda: len(asyncio.all_tasks()) == before)


async def test_telling_is_not_answered_and_does_not_wait(calls: Calls, replica: ScriptedReplica, run: str) -> None:
    await calls.send(run, ask("x"))
    await calls.send(f"{run}-unserved", ask("y"))
    await until(lambda: replica.finished == ["x"])
    assert replica.service.load == 0
