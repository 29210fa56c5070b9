"""Serving: a worker lives on after any message, is never more than full, and ends without dropping what it has."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

import pytest

from gymq import serving, subjects
from gymq.bus import Bus, BusError, NoResponders
from gymq.calls import Calls
from gymq.discovery import Listing
from gymq.messages import BadMessage, Cancel, Fail, FailureClass, Generated, Ping, Pong, call_id, decoder, encode
from gymq.outcomes import JudgeFailed, RolloutError

from .labour import Labour, ask, call, decode, frames, limit_patience
from .waiting import until

decode_failure = decoder(Fail)
decode_pong = decoder(Pong)


@pytest.fixture
def calls(bus: Bus) -> Calls:
    return Calls(bus)


@pytest.fixture
async def labour(other_bus: Bus, run: str) -> Labour:
    """One replica that serves the subject `<run>`."""
    replica = Labour(other_bus, f"{run}-w")
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
    def deed() -> Any:
        raise error

    return deed


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


@pytest.mark.parametrize(("deed", "text"), BROKEN)
async def test_whatever_a_handler_does_the_caller_gets_a_failure_and_the_worker_lives(
    calls: Calls, labour: Labour, run: str, deed: Callable[[], Any], text: str
) -> None:
    labour.deed = deed
    error = await failure(calls, run, deed=True)
    assert error.failure_class is FailureClass.VERIFIER_FAILED
    assert text in error.message
    assert len(error.message) < 5000
    assert (await call(calls, run, ask()))["worker"] == labour.worker
    await until(lambda: labour.service.load == 0)
    assert not labour.server.jobs


async def test_a_typed_failure_of_a_handler_arrives_as_it_is(calls: Calls, labour: Labour, run: str) -> None:
    labour.deed = raises(JudgeFailed("the judge is away"))
    error = await failure(calls, run, deed=True)
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

    await server.serve("model", run, decode, answer, group="g", limit=1, broken=FailureClass.MODEL_FAILED)
    error = await failure(calls, run)
    assert (error.failure_class, error.message) == (FailureClass.MODEL_FAILED, "model: ValueError: bad")


@pytest.mark.parametrize("body", [b"", b"\xff", b"{}", b'{"type": "seed.v1"}', encode(Pong()), b"\x28\xb5\x2f\xfd"])
async def test_a_body_that_is_no_request_is_refused_with_a_reason(
    bus: Bus, labour: Labour, run: str, body: bytes
) -> None:
    (reply,) = await frames(bus, run, body, 1)
    assert decode_failure(reply).failure_class is FailureClass.BAD_REQUEST
    assert decode_failure(reply).message
    assert (labour.service.num_requests, labour.service.num_errors) == (1, 1)


async def test_errors_are_logged_with_their_traceback(
    calls: Calls, labour: Labour, run: str, caplog: pytest.LogCaptureFixture
) -> None:
    labour.deed = raises(ValueError("look here"))
    await failure(calls, run, deed=True)
    record = next(record for record in caplog.records if record.name == "gymq.serving")
    assert record.levelno == logging.ERROR
    assert record.exc_info is not None


# Replies ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reply", ["gym.tasks", "gym.rollouts.r.0.0", "_INBOX.x", "INBOX_x", "x"])
async def test_a_request_that_wants_its_reply_elsewhere_is_ignored(
    bus: Bus, labour: Labour, run: str, reply: str
) -> None:
    spied = []

    async def spy(message: Any) -> None:
        spied.append(message.data)

    watching = await bus.subscribe(reply, spy)
    await bus.publish(run, encode(ask()), reply=reply)
    await bus.publish(run, b"garbage", reply=reply)
    await bus.publish(subjects.ping(bus.role, labour.worker), encode(Ping(calls=[])), reply=reply)
    await bus.publish(subjects.ping(bus.role, labour.worker), b"garbage", reply=reply)
    await frames(bus, run, encode(ask("last")), 1)
    await bus.unsubscribe(watching)
    assert labour.started == ["last"]
    assert not spied


async def test_a_ping_tells_which_calls_are_gone(bus: Bus, labour: Labour, run: str) -> None:
    waiting = asyncio.create_task(frames(bus, run, encode(ask(wait=True)), 1))
    await until(lambda: labour.started)
    (reply,) = labour.server.jobs
    (job,) = labour.server.jobs.values()
    await until(lambda: job.id)
    call = call_id(str(reply))
    ping = encode(Ping(calls=[call, "x", ""]))
    pong = await bus.request(subjects.ping(bus.role, labour.worker), ping, timeout_s=20)
    assert decode_pong(pong.data).gone == ["x", ""]
    labour.go.set()
    await waiting
    pong = await bus.request(subjects.ping(bus.role, labour.worker), ping, timeout_s=20)
    assert decode_pong(pong.data).gone == [call, "x", ""]


@pytest.mark.parametrize("body", [b"", b"\xff", encode(Cancel(call="nobody"))])
async def test_a_cancel_that_means_nothing_is_ignored(
    calls: Calls, bus: Bus, labour: Labour, run: str, body: bytes
) -> None:
    await bus.publish(subjects.cancel(bus.role, labour.worker), body)
    assert await call(calls, run, ask())


# Full workers -----------------------------------------------------------------------------------------------------


@pytest.fixture
def small_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "MOST_WAITING", 4)


async def test_no_more_run_at_once_than_allowed(calls: Calls, other_bus: Bus, run: str) -> None:
    labour = Labour(other_bus, f"{run}-w")
    await labour.serve(run, limit=3)
    working = [asyncio.create_task(call(calls, run, ask(str(number), wait=True))) for number in range(10)]
    await until(lambda: labour.service.load == 10)
    assert labour.started == ["0", "1", "2"]
    labour.go.set()
    await asyncio.gather(*working)
    assert labour.finished == [str(number) for number in range(10)]


async def until_nobody_serves(bus: Bus, subject: str) -> None:
    async with asyncio.timeout(30):
        with contextlib.suppress(NoResponders):
            while True:
                await bus.request(subject, b"garbage", timeout_s=20)


async def test_a_full_worker_leaves_its_group_until_it_has_room(
    calls: Calls, bus: Bus, other_bus: Bus, run: str, small_queues: None
) -> None:
    full, free = Labour(other_bus, f"{run}-full"), Labour(bus, f"{run}-free")
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
    labour = Labour(other_bus, f"{run}-w")
    await labour.serve(run, limit=2)
    listing = Listing(
        other_bus, name=run, worker=labour.worker, kind="models", implementation="x", subjects=[run], stats=dict
    )
    await listing.start()
    working = [asyncio.create_task(call(calls, run, ask(str(number), wait=True))) for number in range(50)]
    await until(lambda: labour.service.load >= 6)
    await asyncio.sleep(0.5)  # longer than a caller would wait for a worker that is not there
    labour.go.set()
    await asyncio.gather(*working)
    assert sorted(labour.finished, key=int) == [str(number) for number in range(50)]


async def test_a_worker_that_fills_and_empties_again_and_again_answers_every_call_once(
    calls: Calls, bus: Bus, other_bus: Bus, run: str, small_queues: None
) -> None:
    replicas = [Labour(other_bus, f"{run}-a"), Labour(bus, f"{run}-b")]
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
    labour = Labour(other_bus, f"{run}-w")
    await labour.serve(run, limit=1)
    running, waiting = (asyncio.create_task(call(calls, run, ask(name, wait=True))) for name in ("a", "b"))
    await until(lambda: labour.service.load == 2)
    waiting.cancel()
    await until(lambda: labour.service.load == 1)
    labour.go.set()
    await running
    assert labour.started == ["a"]


async def test_a_call_that_waits_until_its_deadline_never_runs(calls: Calls, other_bus: Bus, run: str) -> None:
    labour = Labour(other_bus, f"{run}-w")
    await labour.serve(run, limit=1)
    running = asyncio.create_task(call(calls, run, ask("a", wait=True)))
    await until(lambda: labour.started)
    error = await failure(calls, run, rollout="b", timeout_s=0.4)
    assert error.failure_class is FailureClass.DEADLINE_EXCEEDED
    await until(lambda: labour.service.load == 1)
    labour.go.set()
    await running
    assert labour.started == ["a"]


async def test_a_caller_by_hand_is_told_that_its_call_waited_too_long(bus: Bus, other_bus: Bus, run: str) -> None:
    labour = Labour(other_bus, f"{run}-w")
    await labour.serve(run, limit=1)
    await bus.publish(run, encode(ask("a", wait=True)))
    _, reply = await frames(bus, run, encode(ask("b", timeout_s=0.4)), 2)
    assert decode_failure(reply).failure_class is FailureClass.DEADLINE_EXCEEDED
    assert labour.service.load == 1


# Ending -----------------------------------------------------------------------------------------------------------


async def test_draining_answers_what_has_arrived(calls: Calls, other_bus: Bus, run: str) -> None:
    labour = Labour(other_bus, f"{run}-w")
    await labour.serve(run, limit=2)
    working = [asyncio.create_task(call(calls, run, ask(sleep_s=0.05))) for _ in range(10)]
    await until(lambda: labour.service.load == 10)
    await labour.server.drain(30)
    assert len(labour.finished) == 10
    await asyncio.gather(*working)


async def test_while_it_drains_new_calls_go_elsewhere(
    calls: Calls, bus: Bus, other_bus: Bus, labour: Labour, run: str
) -> None:
    working = asyncio.create_task(call(calls, run, ask("a", wait=True)))
    await until(lambda: labour.started)
    draining = asyncio.create_task(labour.server.drain(30))
    await asyncio.sleep(0)
    other = Labour(bus, f"{run}-o")
    await other.serve(run)
    await other_bus.flush()  # it has left
    for _ in range(20):
        assert (await call(calls, run, ask()))["worker"] == other.worker
    labour.go.set()
    await working
    await draining


async def test_what_a_drain_cannot_finish_is_made_by_another(calls: Calls, bus: Bus, labour: Labour, run: str) -> None:
    working = asyncio.create_task(call(calls, run, ask("a", timeout_s=3600, wait=True)))
    await until(lambda: labour.started)
    await labour.server.leave()
    other = Labour(bus, f"{run}-o")
    await other.serve(run)
    other.go.set()
    await labour.server.drain(0.1)
    assert labour.cancelled == ["a"]
    assert (await working)["worker"] == other.worker
    assert not labour.server.jobs


async def test_a_drained_worker_starts_nothing_that_waited(calls: Calls, other_bus: Bus, run: str) -> None:
    labour = Labour(other_bus, f"{run}-w")
    await labour.serve(run, limit=1)
    working = [asyncio.create_task(call(calls, run, ask(name, wait=True))) for name in ("a", "b")]
    await until(lambda: labour.service.load == 2)
    await labour.server.drain(0.1)
    assert labour.started == ["a"]
    assert labour.service.load == 0
    for task in working:
        task.cancel()


async def test_a_drain_without_a_server_ends(own_bus: Bus, own_server: Any) -> None:
    labour = Labour(own_bus, "w")
    await labour.serve("x")
    await own_server.stop()
    await until(lambda: not own_bus.is_connected)
    async with asyncio.timeout(30):
        await labour.server.drain(1)
    await own_server.start()
