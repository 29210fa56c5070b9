"""One bad message costs itself: not the connection that hears it, nor the reader or the profiler behind it."""

import asyncio
import json
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest
from nats.aio.msg import Msg

from gymq.bus import Bus, streams
from gymq.bus.client import parse_headers
from gymq.bus.jetstream import JetStream
from gymq.bus.pull import Delivery, Pull
from gymq.bus.queue.outcome_store import OutcomeStore
from gymq.cluster.server import EmbeddedServer
from gymq.execution.services.profiler import Profiler, last_profile, read_profile
from gymq.protocol import subjects
from gymq.protocol.codec import encode
from gymq.protocol.messages import BlobRef, Profile, VerifiedRollout
from gymq.protocol.subjects import TaskQueueName
from tests.support.waiting import DEADLINE_S, until, until_answer


class Wire:
    """A connection that sends what no client library would."""

    def __init__(self, url: str) -> None:
        self._url = urlsplit(url)

    async def send(self, commands: bytes) -> None:
        """Send commands, and wait until the server has handled them."""
        reader, writer = await asyncio.open_connection(self._url.hostname, self._url.port)
        login = {"user": self._url.username, "pass": self._url.password, "auth_token": self._url.username}
        login |= {"headers": True, "no_responders": True}  # type: ignore[dict-item]
        writer.write(b"CONNECT %s\r\n%sPING\r\n" % (json.dumps(login).encode(), commands))
        async with asyncio.timeout(DEADLINE_S):
            while not (line := await reader.readline()).startswith(b"PONG"):
                assert not line.startswith(b"-ERR"), line
                assert line
        writer.close()

    async def publish(self, subject: bytes, body: bytes, *, reply: bytes = b"", headers: bytes = b"") -> None:
        if headers:
            command = b"HPUB %s %s %d %d" % (subject, reply, len(headers), len(headers) + len(body))
        else:
            command = b"PUB %s %s %d" % (subject, reply, len(body))
        await self.send(b"%s\r\n%s%s\r\n" % (command, headers, body))


@pytest.fixture
def wire(own_server: EmbeddedServer) -> Wire:
    return Wire(own_server.url)


@pytest.fixture
async def js(own_bus: Bus) -> JetStream:
    js = own_bus.js
    await streams.ensure(js, ["a"])
    return js


# The connection -------------------------------------------------------------------------------------------------------

ODD = {
    "a subject with a vertical tab": {"subject": b"poison.a\x0bb"},
    "a subject with a form feed": {"subject": b"poison.a\x0cb"},
    "a subject that is not UTF-8": {"subject": b"poison.\xff"},
    "a reply subject with a vertical tab": {"reply": b"_INBOX_a\x0bb"},
    "a reply subject that is not UTF-8": {"reply": b"_INBOX_\xff"},
    "headers of one byte": {"headers": b"X"},
    "headers of two bytes": {"headers": b"\r\n"},
    "headers of a version alone": {"headers": b"NATS/1.0"},
    "headers without an end": {"headers": b"NATS/1.0\r\nA: b"},
    "headers with a status that is not a number": {"headers": b"NATS/1.0 \xff\xff\r\n\r\n"},
    "headers without a colon": {"headers": b"NATS/1.0\r\n\xff\xfe\r\n\r\n"},
    "headers of nothing": {"headers": b"\x00" * 40},
}


@pytest.mark.parametrize("odd", ODD)
async def test_an_odd_message_costs_nobody_the_connection(own_bus: Bus, wire: Wire, odd: str) -> None:
    heard: list[bytes] = []

    async def hear(message: Msg) -> None:
        heard.append(message.data)

    await own_bus.subscribe("poison.>", hear)
    await own_bus.flush()
    await wire.publish(**({"subject": b"poison.x", "body": b"odd"} | ODD[odd]))
    await wire.publish(b"poison.x", b"good")
    await until(lambda: b"good" in heard)
    assert own_bus.reconnects == 0


def test_headers_are_those_that_the_server_wrote_last() -> None:
    assert parse_headers(b"NATS/1.0\r\nStatus: 404\r\nDescription: x\r\nA: 1\r\nA: 2\r\n\r\n") == {"A": "2"}
    assert parse_headers(b"NATS/1.0 404 Message Not Found\r\n\r\n") == {
        "Status": "404",
        "Description": "Message Not Found",
    }
    assert parse_headers(b"NATS/1.0 503\r\n\r\n") == {"Status": "503", "Description": ""}
    assert parse_headers(b"NATS/1.0\r\nA:b:c\r\nB:  d \r\n\r\n") == {"A": "b:c", "B": "d"}
    assert parse_headers(b"X") is None


# Streams --------------------------------------------------------------------------------------------------------------

LIES = {
    "a status of its own": b"NATS/1.0 404 Message Not Found\r\n\r\n",
    "the end of a batch": b"NATS/1.0 204 EOB\r\nNats-Num-Pending: 0\r\n\r\n",
    "a header that is called status": b"NATS/1.0\r\nStatus: 404\r\n\r\n",
    "another sequence": b"NATS/1.0\r\nNats-Sequence: x\r\nNats-Last-Sequence: x\r\nNats-Num-Pending: x\r\n\r\n",
    "another subject": b"NATS/1.0\r\nNats-Subject: gym.runs.other\r\nNats-Stream: OTHER\r\n\r\n",
}


@pytest.mark.parametrize("lie", LIES)
async def test_headers_that_lie_hide_no_message(js: JetStream, wire: Wire, lie: str) -> None:
    for run in ("a", "b", "c"):
        headers = LIES[lie] if run == "b" else b""
        await wire.publish(b"gym.runs.%s" % run.encode(), run.encode(), headers=headers)
    # The server answers before it has stored them.
    await until_answer(lambda: js.count(streams.RUNS, "gym.runs.*"), lambda number: number == 3)
    read = [(stored.subject, stored.data) async for stored in js.read(streams.RUNS, "gym.runs.*")]
    assert read == [("gym.runs.a", b"a"), ("gym.runs.b", b"b"), ("gym.runs.c", b"c")]
    assert await js.count(streams.RUNS, "gym.runs.*") == 3
    assert await js.count(streams.RUNS, "gym.runs.b") == 1
    last = await js.last(streams.RUNS, "gym.runs.b")
    assert last is not None
    assert (last.subject, last.data) == ("gym.runs.b", b"b")


@pytest.mark.parametrize("lie", LIES)
async def test_headers_that_lie_do_not_keep_a_task_from_being_delivered(
    js: JetStream, own_bus: Bus, wire: Wire, lie: str
) -> None:
    taken: list[Delivery] = []
    queue = TaskQueueName("tasks", "r", "a")
    await streams.ensure_queue(js, queue, ack_wait_s=30.0)
    pull = Pull(own_bus, streams.TASKS, queue.consumer, taken.append)
    await pull.start()
    await pull.ask(2)
    await wire.publish(b"gym.tasks.r.a", b"odd", headers=LIES[lie])
    await wire.publish(b"gym.tasks.r.a", b"good")
    await until(lambda: len(taken) == 2)
    assert [delivery.data for delivery in taken] == [b"odd", b"good"]
    await pull.stop()


# The profiler ---------------------------------------------------------------------------------------------------------


@pytest.fixture
async def profiler(own_bus: Bus, js: JetStream) -> AsyncIterator[Profiler]:
    profiler = Profiler(own_bus)
    yield profiler
    await profiler.stop()


def rollout(task_index: int = 0, run: str = "good") -> VerifiedRollout:
    return VerifiedRollout(
        run=run, task_index=task_index, rollout_index=0, agent="a", row=b"{}", response={}, reward=1.0
    )


async def counted(js: JetStream, run: str = "good") -> int:
    """Rollouts in the stored profile of a run."""
    profile, _ = await last_profile(js, run)
    snapshot = profile.snapshot()
    return snapshot.agents["a"].rollouts if "a" in snapshot.agents else 0


async def until_counted(js: JetStream, count: int, run: str = "good") -> None:
    await until_answer(lambda: counted(js, run), lambda number: number == count)


BAD_SUBJECTS = [
    "gym.rollouts.x.99999999999999999999.0",
    "gym.rollouts.x.0.99999999999999999999",
    f"gym.rollouts.x.{2**53 + 1}.0",
    f"gym.rollouts.{'x' * 65}.0.0",
    "gym.rollouts.$x.0.0",
    "gym.rollouts.x\u00e4.0.0",
    "gym.rollouts.x.\u0663.0",
    "gym.rollouts.x",
    "gym.rollouts.x.0.0.0",
]
FOREIGN = BlobRef(subject="gym.parts.call.model.x", parts=1, num_bytes=1, sha256="0" * 64)


async def test_the_profiler_continues_past_what_is_no_outcome(
    js: JetStream, own_bus: Bus, profiler: Profiler, caplog: pytest.LogCaptureFixture
) -> None:
    await js.store("gym.rollouts.good.0.0", encode(rollout(0)))
    await profiler.start()
    await until_counted(js, 1)
    for subject in BAD_SUBJECTS:
        await js.store(subject, b"x")
    for index, body in enumerate((b"x", b"", encode(FOREIGN), encode(rollout(7, "other")))):
        await js.store(f"gym.rollouts.unreadable.{index}.0", body)
    await js.store("gym.rollouts.good.1.0", encode(rollout(1)))
    await until_counted(js, 2)
    assert profiler.num_aside == len(BAD_SUBJECTS)
    store = OutcomeStore(own_bus)
    caplog.clear()
    for _ in range(3):
        assert [outcome async for _, outcome in store.read("x")] == []
    assert len(caplog.records) == len([subject for subject in BAD_SUBJECTS if subject.startswith("gym.rollouts.x.")])


@pytest.mark.parametrize("run", ["good", "a-run-of-nobody"])
@pytest.mark.parametrize(
    "profile",
    [
        b"x",
        encode(Profile(run="good", sequence=2**53, all_sequence=2**53, at=0.0, snapshot={}, state=b"")),
        encode(Profile(run="good", sequence=0, all_sequence=2**40, at=0.0, snapshot={"agents": 7}, state=b"\x91" * 9)),
    ],
    ids=["unreadable", "ahead", "no state"],
)
async def test_a_poisoned_checkpoint_stops_no_profiler(
    js: JetStream, profiler: Profiler, run: str, profile: bytes
) -> None:
    await js.store("gym.rollouts.good.0.0", encode(rollout(0)))
    await js.store(subjects.PROFILE.of(run), profile)
    await profiler.start()
    await until_counted(js, 1)
    await js.store("gym.rollouts.good.1.0", encode(rollout(1)))
    await until_counted(js, 2)
    checkpoint = await read_profile(js, run)
    assert (None if checkpoint is None else checkpoint.snapshot["all"]["rollouts"]) == (2 if run == "good" else None)


async def test_a_profile_that_cannot_be_stored_stops_no_other(
    js: JetStream, own_bus: Bus, profiler: Profiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    await js.store("gym.rollouts.aa.0.0", encode(rollout(0, "aa")))  # before the others
    monkeypatch.setattr(own_bus, "max_body_bytes", 2000)
    for index in range(100):
        await js.store(
            f"gym.rollouts.large.{index}.0",
            encode(
                rollout(
                    index,
                    "large",
                )
            ),
        )
    await profiler.start()
    await until_counted(js, 1, "aa")
    await js.store("gym.rollouts.good.0.0", encode(rollout(0)))
    await until_counted(js, 1)
