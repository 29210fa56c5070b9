"""Serving: a worker lives on after any message, is never more than full, and ends without dropping what it has."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

import pytest

from gymq.bus import Bus, BusError, NoResponders
from gymq.bus.discovery import ServiceListing
from gymq.bus.rpc import serving
from gymq.bus.rpc.calls import Calls
from gymq.failures import JudgeFailed, RolloutError
from gymq.protocol import subjects
from gymq.protocol.codec import Decoder, encode
from gymq.protocol.messages import BadMessage, Cancel, Fail, FailureClass, Generated, Ping, Pong
from tests.support.scripted_replica import ScriptedReplica, ask, call, decode, frames, limit_patience, noise
from tests.support.waiting import DEADLINE_S, until

decode_failure = Decoder(Fail)
decode_pong = Decoder(Pong)


@pytest.fixture
def calls(bus: Bus) -> Calls:
    return Calls(bus)


@pytest.fixture
async def replica(other_bus: Bus, run: str) -> ScriptedReplica:
    """One replica that serves the subject `<run>`."""
    replica = ScriptedReplica(other_bus, f"{run}-w")
    await replica.serve(run)
    return replica


async def failure(calls: Calls, subject: str, **params: Any) -> RolloutError:
    with pytest.raises(RolloutError) as error:
        await call(calls, subject, ask(**params))
    return error.value


# Handlers that go wrong -------------------------------------------------------------------------------------------


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def deep() -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(100_000):
        value = {"a": value}
    return value


def raises(error: BaseException) -> Callable[[], Any]:
    def action() -> Any:
        raise error

    return action


async def awaits_what_was_cancelled() -> Any:
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


def recurses() -> Any:
    return recurses()


BROKEN = [
    (raises(ValueError("bad")), "ValueError: bad"),
    (raises(SystemExit(3)), "SystemExit: 3"),
    (raises(KeyboardInterrupt()), "KeyboardInterrupt"),
    (raises(MemoryError()), "MemoryError"),
    (raises(TimeoutError()), "TimeoutError"),
    (raises(StopAsyncIteration()), "StopAsyncIteration"),
    (raises(BaseExceptionGroup("both", [SystemExit(1)])), "both"),
    (raises(Unspeakable()), "Unspeakable"),
    (raises(ValueError("half \ud800 of it")), "half ? of it"),
    (raises(ValueError("x" * 10_000_000)), "xxx"),
    (raises(BadMessage("not from the caller")), "BadMessage: not from the caller"),
    (raises(BusError("no bus")), "BusError: no bus"),
    (raises(asyncio.CancelledError()), "CancelledError"),
    (recurses, "RecursionError"),
    (awaits_what_was_cancelled, "CancelledError"),
    (lambda: Generated(response={"n": 2**64}), "no wire form"),
    (lambda: Generated(response={"text": "\ud800"}), "no wire form"),
    (lambda: Generated(response={"o": object()}), "no wire form"),
    (lambda: Generated(response=deep()), "no wire form"),
]


@pytest.mark.parametrize(("action", "text"), BROKEN)
async def test_whatever_a_handler_does_the_caller_gets_a_failure_and_the_worker_lives(
    calls: Calls, replica: ScriptedReplica, run: str, action: Callable[[], Any], text: str
) -> None:
    replica.action = action
    error = await failure(calls, run, action=True)
    assert error.failure_class is FailureClass.VERIFIER_FAILED
    assert text in error.message
    assert len(error.message) < 5000
    assert (await call(calls, run, ask()))["worker"] == replica.worker
    await until(lambda: replica.service.load == 0)
    assert not replica.server.jobs.all


async def test_a_typed_failure_of_a_handler_arrives_as_it_is(calls: Calls, replica: ScriptedReplica, run: str) -> None:
    replica.action = raises(JudgeFailed("the judge is away"))
    error = await failure(calls, run, action=True)
    assert (error.failure_class, error.message, error.retryable) == (
        FailureClass.JUDGE_FAILED,
        "the judge is away",
        True,
    )


async def test_a_broken_service_names_its_own_failure(calls: Calls, other_bus: Bus, run: str) -> None:
    server = serving.Server(other_bus, f"{run}-w")
    await server.start()

    async def answer(_subject: str, _request: Any) -> Any:
        raise ValueError("bad")

    await server.serve("model", run, decode, answer, group="g", limit=1, failure_class=FailureClass.MODEL_FAILED)
    error = await failure(calls, run)
    assert (error.failure_class, error.message) == (FailureClass.MODEL_FAILED, "model: ValueError: bad")


@pytest.mark.parametrize("body", [b"", b"\xff", b"{}", b'{"type": "seed.v1"}', encode(Pong()), b"\x28\xb5\x2f\xfd"])
async def test_a_body_that_is_no_request_is_refused_with_a_reason(
    bus: Bus, replica: ScriptedReplica, run: str, body: bytes
) -> None:
    (reply,) = await frames(bus, run, body, 1)
    assert decode_failure(reply).failure_class is FailureClass.BAD_REQUEST
    assert decode_failure(reply).message
    assert (replica.service.num_requests, replica.service.num_errors) == (1, 1)


async def test_errors_are_logged_with_their_traceback(
    calls: Calls, replica: ScriptedReplica, run: str, caplog: pytest.LogCaptureFixture
) -> None:
    replica.action = raises(ValueError("look here"))
    await failure(calls, run, action=True)
    record = next(record for record in caplog.records if record.name == "gymq.serving")
    assert record.levelno == logging.ERROR
    assert record.exc_info is not None


# Replies ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reply", ["gym.tasks", "gym.rollouts.r.0.0", "_INBOX.x", "INBOX_x", "x"])
async def test_a_request_that_wants_its_reply_elsewhere_is_ignored(
    bus: Bus, replica: ScriptedReplica, run: str, reply: str
) -> None:
    spied = []

    async def spy(message: Any) -> None:
        spied.append(message.data)

    watching = await bus.subscribe(reply, spy)
    await bus.publish(run, encode(ask()), reply=reply)
    await bus.publish(run, b"garbage", reply=reply)
    await bus.publish(subjects.PING.of(bus.role, replica.worker), encode(Ping(calls=[])), reply=reply)
    await bus.publish(subjects.PING.of(bus.role, replica.worker), b"garbage", reply=reply)
    await frames(bus, run, encode(ask("last")), 1)
    await bus.unsubscribe(watching)
    assert replica.started == ["last"]
    assert not spied


async def test_a_ping_tells_which_calls_are_gone(bus: Bus, replica: ScriptedReplica, run: str) -> None:
    waiting = asyncio.create_task(frames(bus, run, encode(ask(wait=True)), 1))
    await until(lambda: replica.started)
    (job,) = replica.server.jobs.all
    await until(lambda: job.id)
    call = subjects.call_id(job.inbox)
    ping = encode(Ping(calls=[call, "x", ""]))
    pong = await bus.request(subjects.PING.of(bus.role, replica.worker), ping, timeout_s=20)
    assert decode_pong(pong.data).gone == ["x", ""]
    replica.go.set()
    await waiting
    pong = await bus.request(subjects.PING.of(bus.role, replica.worker), ping, timeout_s=20)
    assert decode_pong(pong.data).gone == [call, "x", ""]


@pytest.mark.parametrize("body", [b"", b"\xff", encode(Cancel(call="nobody"))])
async def test_a_cancel_that_means_nothing_is_ignored(
    calls: Calls, bus: Bus, replica: ScriptedReplica, run: str, body: bytes
) -> None:
    await bus.publish(subjects.CANCEL.of(bus.role, replica.worker), body)
    assert await call(calls, run, ask())


# Full workers -----------------------------------------------------------------------------------------------------


@pytest.fixture
def small_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "MOST_WAITING", 4)


async def test_no_more_run_at_once_than_allowed(calls: Calls, other_bus: Bus, run: str) -> None:
    replica = ScriptedReplica(other_bus, f"{run}-w")
    await replica.serve(run, limit=3)
    working = [asyncio.create_task(call(calls, run, ask(str(number), wait=True))) for number in range(10)]
    await until(lambda: replica.service.load == 10 and len(replica.started) >= 3)
    assert replica.started == ["0", "1", "2"]
    replica.go.set()
    await asyncio.gather(*working)
    assert replica.finished == [str(number) for number in range(10)]


async def test_a_worker_with_too_many_bytes_waiting_leaves_its_group_until_it_has_room(
    calls: Calls, bus: Bus, other_bus: Bus, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "MOST_WAITING_BYTES", 30_000)
    full = ScriptedReplica(other_bus, f"{run}-full")
    await full.serve(run, limit=1)
    padding = noise(10_000)
    begun = [asyncio.create_task(call(calls, run, ask(wait=True, padding=padding))) for _ in range(4)]
    await until(lambda: full.service.load == 4)
    await until_nobody_serves(bus, run)
    full.go.set()
    await asyncio.gather(*begun)
    assert (await call(calls, run, ask()))["worker"] == full.worker


async def until_nobody_serves(bus: Bus, subject: str) -> None:
    async with asyncio.timeout(DEADLINE_S):
        with contextlib.suppress(NoResponders):
            while True:
                await bus.request(subject, b"garbage", timeout_s=20)


async def test_a_full_worker_leaves_its_group_until_it_has_room(
    calls: Calls, bus: Bus, other_bus: Bus, run: str, small_queues: None
) -> None:
    full, free = ScriptedReplica(other_bus, f"{run}-full"), ScriptedReplica(bus, f"{run}-free")
    await full.serve(run, limit=1)
    first = [asyncio.create_task(call(calls, run, ask(wait=True))) for _ in range(5)]
    await until(lambda: full.service.load == 5)
    await until_nobody_serves(bus, run)
    await free.serve(run)
    for _ in range(20):
        assert (await call(calls, run, ask()))["worker"] == free.worker
    await free.service.leave()
    full.go.set()
    await asyncio.gather(*first)
    assert (await call(calls, run, ask()))["worker"] == full.worker


async def test_callers_of_the_only_worker_wait_until_it_has_room(
    calls: Calls, other_bus: Bus, run: str, small_queues: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_patience(monkeypatch, 0.1)
    replica = ScriptedReplica(other_bus, f"{run}-w")
    await replica.serve(run, limit=2)
    listing = ServiceListing(
        other_bus, name=run, worker=replica.worker, kind="models", implementation="x", subjects=[run], stats=dict
    )
    await listing.start()
    working = [asyncio.create_task(call(calls, run, ask(str(number), wait=True))) for number in range(50)]
    await until(lambda: replica.service.load >= 6)
    await asyncio.sleep(0.5)  # longer than a caller would wait for a worker that is not there
    replica.go.set()
    await asyncio.gather(*working)
    assert sorted(replica.finished, key=int) == [str(number) for number in range(50)]


async def test_a_worker_that_fills_and_empties_again_and_again_answers_every_call_once(
    calls: Calls, bus: Bus, other_bus: Bus, run: str, small_queues: None
) -> None:
    replicas = [ScriptedReplica(other_bus, f"{run}-a"), ScriptedReplica(bus, f"{run}-b")]
    for replica in replicas:
        await replica.serve(run, limit=2)
    requests = [ask(str(number), sleep_s=0.001 * (number % 7)) for number in range(300)]
    await asyncio.gather(*(call(calls, run, request) for request in requests))
    assert sorted(int(name) for replica in replicas for name in replica.finished) == list(range(300))
    for replica in replicas:
        await replica.service.leave()
        assert replica.service.load == 0
    with pytest.raises(NoResponders):
        await bus.request(run, b"", timeout_s=20)


async def test_a_call_that_waits_is_dropped_when_nobody_waits_for_it(calls: Calls, other_bus: Bus, run: str) -> None:
    replica = ScriptedReplica(other_bus, f"{run}-w")
    await replica.serve(run, limit=1)
    running, waiting = (asyncio.create_task(call(calls, run, ask(name, wait=True))) for name in ("a", "b"))
    await until(lambda: replica.service.load == 2)
    waiting.cancel()
    await until(lambda: replica.service.load == 1)
    replica.go.set()
    await running
    assert replica.started == ["a"]


async def test_a_call_that_waits_until_its_deadline_never_runs(calls: Calls, other_bus: Bus, run: str) -> None:
    replica = ScriptedReplica(other_bus, f"{run}-w")
    await replica.serve(run, limit=1)
    running = asyncio.create_task(call(calls, run, ask("a", wait=True)))
    await until(lambda: replica.started)
    error = await failure(calls, run, rollout="b", timeout_s=0.4)
    assert error.failure_class is FailureClass.DEADLINE_EXCEEDED
    await until(lambda: replica.service.load == 1)
    replica.go.set()
    await running
    assert replica.started == ["a"]


async def test_a_caller_by_hand_is_told_that_its_call_waited_too_long(bus: Bus, other_bus: Bus, run: str) -> None:
    replica = ScriptedReplica(other_bus, f"{run}-w")
    await replica.serve(run, limit=1)
    await bus.publish(run, encode(ask("a", wait=True)))
    _, reply = await frames(bus, run, encode(ask("b", timeout_s=0.4)), 2)
    assert decode_failure(reply).failure_class is FailureClass.DEADLINE_EXCEEDED
    assert replica.service.load == 1


# Ending -----------------------------------------------------------------------------------------------------------


async def test_draining_answers_what_has_arrived(calls: Calls, other_bus: Bus, run: str) -> None:
    replica = ScriptedReplica(other_bus, f"{run}-w")
    await replica.serve(run, limit=2)
    working = [asyncio.create_task(call(calls, run, ask(sleep_s=0.05))) for _ in range(10)]
    await until(lambda: replica.service.load == 10)
    await replica.server.drain(30)
    assert len(replica.finished) == 10
    await asyncio.gather(*working)


async def test_while_it_drains_new_calls_go_elsewhere(
    calls: Calls, bus: Bus, other_bus: Bus, replica: ScriptedReplica, run: str
) -> None:
    working = asyncio.create_task(call(calls, run, ask("a", wait=True)))
    await until(lambda: replica.started)
    draining = asyncio.create_task(replica.server.drain(30))
    await asyncio.sleep(0)
    other = ScriptedReplica(bus, f"{run}-o")
    await other.serve(run)
    await other_bus.flush()  # it has left
    for _ in range(20):
        assert (await call(calls, run, ask()))["worker"] == other.worker
    replica.go.set()
    await working
    await draining


async def test_what_a_drain_cannot_finish_is_made_by_another(
    calls: Calls, bus: Bus, replica: ScriptedReplica, run: str
) -> None:
    working = asyncio.create_task(call(calls, run, ask("a", timeout_s=3600, wait=True)))
    await until(lambda: replica.started)
    await replica.server.leave()
    other = ScriptedReplica(bus, f"{run}-o")
    await other.serve(run)
    other.go.set()
    await replica.server.drain(0.1)
    assert replica.cancelled == ["a"]
    assert (await working)["worker"] == other.worker
    assert not replica.server.jobs.all


async def test_a_drained_worker_starts_nothing_that_waited(calls: Calls, other_bus: Bus, run: str) -> None:
    replica = ScriptedReplica(other_bus, f"{run}-w")
    await replica.serve(run, limit=1)
    working = [asyncio.create_task(call(calls, run, ask(name, wait=True))) for name in ("a", "b")]
    await until(lambda: replica.service.load == 2)
    await replica.server.drain(0.1)
    assert replica.started == ["a"]
    assert replica.service.load == 0
    for task in working:
        task.cancel()


async def test_a_drain_without_a_server_ends(own_bus: Bus, own_server: Any) -> None:
    replica = ScriptedReplica(own_bus, "w")
    await replica.serve("x")
    await own_server.stop()
    await until(lambda: not own_bus.is_connected)
    async with asyncio.timeout(DEADLINE_S):
        await replica.server.drain(1)
    await own_server.start()


async def test_callers_that_called_long_ago_are_forgotten(
    bus: Bus, replica: ScriptedReplica, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "CALLER_S", -1.0)
    for number in range(100):
        await bus.publish(run, encode(ask()), reply=subjects.reply("test", "any", f"box{number}", "name"))
    await until(lambda: len(replica.finished) == 100)
    assert len(replica.service._callers) == 1


async def test_calls_that_wait_for_others_are_counted_by_their_limit(bus: Bus, other_bus: Bus, run: str) -> None:
    replica = ScriptedReplica(other_bus, f"{run}-w")
    await replica.serve(run, limit=2)
    calls = Calls(bus)
    asked = [asyncio.create_task(call(calls, run, ask(f"r{number}", wait=True))) for number in range(5)]
    await until(lambda: replica.service.load == 5 and replica.service.held_back == 3)
    assert replica.server.held_back() == {"test: 2 calls at a time in a process (max_concurrency)": 3}
    replica.go.set()
    await asyncio.gather(*asked)
    assert replica.server.held_back() == {}
