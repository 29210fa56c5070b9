"""Storing and reading: nothing lost, nothing twice, whatever the size and whatever happens to the server."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from nats.aio.msg import Msg

from gymq.bus import Bus, BusError, NoAnswer, TooLarge, jetstream
from gymq.bus.jetstream import Code, JetStream, JetStreamError, PubAck
from gymq.cluster.server import EmbeddedServer
from tests.support.waiting import DEADLINE_S, until, until_answer

Kill = Callable[[], Awaitable[None]]
FIRST = {"Nats-Expected-Last-Subject-Sequence": "0"}


async def make_stream(js: JetStream, name: str, **config: Any) -> None:
    await js.api(
        f"STREAM.CREATE.{name}",
        {"name": name, "subjects": [f"{name}.>"], "allow_direct": True, "discard": "new", **config},
    )


@pytest.fixture
async def stream(js: JetStream, run: str) -> str:
    """An empty stream that takes `<name>.>`."""
    await make_stream(js, run)
    return run


async def fill(js: JetStream, stream: str, count: int, size: int = 3) -> None:
    await asyncio.gather(*(js.store(f"{stream}.{number:06d}", bytes(size)) for number in range(count)))


async def sequences(js: JetStream, stream: str, **options: Any) -> list[int]:
    return [stored.sequence async for stored in js.read(stream, f"{stream}.>", **options)]


async def test_what_is_stored_is_found_by_its_subject(js: JetStream, stream: str) -> None:
    await js.store(f"{stream}.a", b"old")
    ack = await js.store(f"{stream}.a", b"new")
    found = await js.last(stream, f"{stream}.a")
    assert found is not None
    assert (found.subject, found.sequence, found.data) == (f"{stream}.a", ack.seq, b"new")


async def test_what_is_not_stored_is_none(js: JetStream, stream: str) -> None:
    assert await js.last(stream, f"{stream}.nothing") is None


async def test_a_stream_that_does_not_exist_is_a_sentence(js: JetStream, run: str) -> None:
    with pytest.raises(NoAnswer, match=f"no stream takes {run}.a"):
        await js.store(f"{run}.a", b"")
    with pytest.raises(NoAnswer, match=f"the stream {run} is not available"):
        await js.last(run, f"{run}.a")
    with pytest.raises(NoAnswer, match=f"the stream {run} is not available"):
        await sequences(js, run)
    with pytest.raises(JetStreamError, match=f"the NATS server has no stream {run}") as refused:
        await js.api(f"STREAM.INFO.{run}")
    assert refused.value.code == Code.STREAM_NOT_FOUND


@pytest.mark.parametrize("body", [b"", b"\xff", b"hello", b"[1]", b'{"error": 7}'])
async def test_an_answer_that_is_not_from_a_stream_is_no_acknowledgement(
    js: JetStream, bus: Bus, run: str, body: bytes
) -> None:
    async def impostor(message: Msg) -> None:
        await bus.publish(message.reply, body)

    await bus.subscribe(run, impostor)
    with pytest.raises(BusError, match="a program other than JetStream answers"):
        await js.store(run, b"")


async def test_fifty_racing_writers_store_one(
    shared_url: str, js: JetStream, stream: str, connect: Callable[[str], Awaitable[Bus]]
) -> None:
    writers = [(await connect(shared_url)).js for _ in range(5)]

    async def write(number: int) -> bool:
        try:
            await writers[number % 5].publish_with_retry(f"{stream}.x", b"%d" % number, FIRST, patience_s=20)
        except JetStreamError as error:
            if error.code != Code.WRONG_LAST_SEQUENCE:
                raise
            return False
        return True

    won = await asyncio.gather(*(write(number) for number in range(50)))
    assert won.count(True) == 1
    stored = await js.last(stream, f"{stream}.x")
    assert stored is not None
    assert int(stored.data) == won.index(True)
    assert len(await sequences(js, stream)) == 1


async def test_storing_while_the_server_is_away_ends_when_it_is_back(
    own_server: EmbeddedServer, own_bus: Bus, kill_server: Kill
) -> None:
    js = own_bus.js
    await make_stream(js, "kept")
    await kill_server()
    await until(lambda: not own_bus.is_connected)
    ids = [{"Nats-Msg-Id": str(number)} for number in range(50)]
    storing = [
        asyncio.create_task(js.publish_with_retry(f"kept.{number}", b"x", headers, patience_s=60))
        for number, headers in enumerate(ids)
    ]
    await asyncio.sleep(0.3)
    assert not any(task.done() for task in storing)
    await own_server.start()
    async with asyncio.timeout(DEADLINE_S):
        await asyncio.gather(*storing)
    assert sorted(await js.count_by_subject("kept", "kept.>")) == sorted(f"kept.{number}" for number in range(50))
    assert len(await sequences(js, "kept")) == 50


@pytest.mark.parametrize("code", [10158, 10164])
async def test_what_the_servers_of_a_cluster_have_yet_to_agree_on_is_waited_for(
    js: JetStream, stream: str, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """They answer so to a message that is repeated while most of them are slow."""
    in_process: list[BusError] = [JetStreamError(code, "in process")] * 2
    store = js.store

    async def agree_late(*arguments: Any, **options: Any) -> PubAck:
        if in_process:
            raise in_process.pop()
        return await store(*arguments, **options)

    monkeypatch.setattr(js, "store", agree_late)
    subject = f"{stream}.x"
    stored = await js.publish_or_last(stream, subject, b"body", last=0, patience_s=30.0)
    assert stored is not None
    assert (stored.sequence, stored.data) == (1, b"body")


async def test_storing_gives_up_after_its_patience(own_bus: Bus, kill_server: Kill) -> None:
    js = own_bus.js
    await kill_server()
    await until(lambda: not own_bus.is_connected)
    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(NoAnswer, match=r"no answer on gym\.rollouts\.a\.0\.0 within 0\.\d+ s"):
            await js.publish_with_retry("gym.rollouts.a.0.0", b"", FIRST, patience_s=0.5)


async def test_a_body_that_is_too_large_is_refused_without_trying_again(js: JetStream, bus: Bus, stream: str) -> None:
    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(TooLarge):
            await js.publish_with_retry(f"{stream}.x", bytes(bus.max_body_bytes + 1), FIRST, patience_s=3600)


async def test_a_message_larger_than_the_stream_allows_is_refused_without_trying_again(js: JetStream, run: str) -> None:
    await make_stream(js, run, max_msg_size=100)
    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(JetStreamError, match="message size exceeds maximum allowed"):
            await js.publish_with_retry(f"{run}.x", bytes(101), FIRST, patience_s=3600)


async def test_a_full_stream_is_waited_for(js: JetStream, run: str) -> None:
    await make_stream(js, run, max_msgs=2)
    await fill(js, run, 2)
    storing = asyncio.create_task(js.publish_with_retry(f"{run}.x", b"late", FIRST, patience_s=60))
    await asyncio.sleep(0.3)
    assert not storing.done()
    await js.api(f"STREAM.MSG.DELETE.{run}", {"seq": 1})
    assert (await asyncio.wait_for(storing, DEADLINE_S)).seq == 3


@pytest.mark.parametrize("limit", [{"max_msgs": 1}, {"max_msgs_per_subject": 1, "discard_new_per_subject": True}])
async def test_a_stream_that_stays_full_is_a_sentence(js: JetStream, run: str, limit: dict[str, Any]) -> None:
    await make_stream(js, run, **limit)
    await js.store(f"{run}.x", b"")
    with pytest.raises(JetStreamError, match=r"disk full: .*maximum messages.*`gymq delete --run RUN`") as refused:
        await js.publish_with_retry(f"{run}.x", b"", {}, patience_s=0.3)
    assert refused.value.code == Code.STREAM_FULL


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 32, 33, 48, 50])
async def test_a_reader_gets_every_message_in_order(js: JetStream, stream: str, count: int) -> None:
    await fill(js, stream, count)
    assert await sequences(js, stream, batch=16) == list(range(1, count + 1))


@pytest.mark.parametrize("after", [0, 1, 15, 16, 39, 40, 41, 1000])
async def test_a_reader_starts_behind_a_sequence(js: JetStream, stream: str, after: int) -> None:
    await fill(js, stream, 40)
    assert await sequences(js, stream, batch=16, after=after) == list(range(after + 1, 41))


async def test_a_reader_passes_over_what_was_deleted(js: JetStream, stream: str) -> None:
    await fill(js, stream, 60)
    gone = {1, 2, 15, 16, 17, 32, 33, 48, 59, 60}
    for sequence in gone:
        await js.api(f"STREAM.MSG.DELETE.{stream}", {"seq": sequence})
    assert await sequences(js, stream, batch=16) == [n for n in range(1, 61) if n not in gone]


async def test_a_reader_gets_only_what_matches(js: JetStream, stream: str) -> None:
    for number in range(60):
        await js.store(f"{stream}.{number % 3}.{number}", b"%d" % number)
    found = [int(stored.data) async for stored in js.read(stream, f"{stream}.1.*", batch=7)]
    assert found == list(range(1, 60, 3))


@pytest.mark.parametrize("size", [1, 99, 100, 101, 350])
async def test_a_batch_cut_short_by_its_size_is_not_the_end(
    js: JetStream, stream: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jetstream, "BATCH_BYTES", 100)
    await fill(js, stream, 40, size)
    assert await sequences(js, stream, batch=16) == list(range(1, 41))


async def test_more_large_bodies_than_fit_into_a_batch_are_all_read(js: JetStream, bus: Bus, stream: str) -> None:
    for number in range(6):
        await js.store(f"{stream}.{number}", bytes([number]) * bus.max_body_bytes)
    found = [(stored.sequence, stored.data[-1], len(stored.data)) async for stored in js.read(stream, f"{stream}.>")]
    assert found == [(number + 1, number, bus.max_body_bytes) for number in range(6)]


@pytest.mark.parametrize("lost", [1, 5])
async def test_a_message_lost_on_the_way_to_a_reader_is_noticed(
    js: JetStream, bus: Bus, stream: str, monkeypatch: pytest.MonkeyPatch, lost: int
) -> None:
    """A client that is too slow drops messages, and says so nowhere else than in its log."""
    await fill(js, stream, 10)
    expect = bus.expect

    def forgetful(on_reply: Callable[[Msg], None], answered_by: str, **options: Any) -> str:
        def unless_lost(message: Msg) -> None:
            if _sequence(message) != lost:
                on_reply(message)

        return expect(unless_lost, answered_by, **options)

    monkeypatch.setattr(bus, "expect", forgetful)
    with pytest.raises(NoAnswer, match="were lost in transit"):
        await sequences(js, stream)


def _sequence(message: Msg) -> int:
    return int((message.headers or {}).get("Nats-Sequence", 0))


async def test_a_reader_whose_server_dies_is_told(own_bus: Bus, kill_server: Kill) -> None:
    js = own_bus.js
    await make_stream(js, "kept")
    await fill(js, "kept", 40)
    reader = js.read("kept", "kept.>", batch=16, timeout_s=0.5)
    assert (await anext(reader)).sequence == 1
    await kill_server()
    with pytest.raises(NoAnswer):
        async for _ in reader:
            pass


async def test_subjects_are_counted(js: JetStream, stream: str) -> None:
    for number in range(10):
        await js.store(f"{stream}.{number % 3}", b"")
    assert await js.count_by_subject(stream, f"{stream}.*") == {f"{stream}.0": 4, f"{stream}.1": 3, f"{stream}.2": 3}
    assert await js.count_by_subject(stream, f"{stream}.nothing") == {}


async def test_more_subjects_than_fit_into_one_answer_are_all_counted(
    js: JetStream, bus: Bus, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server gives 100,000 at a time. A subject that appears between two answers moves the pages."""
    await make_stream(js, run, storage="memory")
    for number in range(100_010):
        await bus.publish(f"{run}.{number}", b"")
    await bus.flush(timeout_s=30)
    await until_answer(lambda: js.api(f"STREAM.INFO.{run}"), lambda info: info["state"]["num_subjects"] == 100_010)
    pages = []
    api = js.api

    async def counted_api(subject: str, body: Any = None, *, timeout_s: float = 10.0) -> dict[str, Any]:
        answer = await api(subject, body, timeout_s=timeout_s)
        pages.append(len(answer["state"]["subjects"]))
        await js.store(f"{run}.!{len(pages)}", b"")  # sorts before all others
        return answer

    monkeypatch.setattr(js, "api", counted_api)
    async with asyncio.timeout(DEADLINE_S):
        counts = await js.count_by_subject(run, f"{run}.*")
    assert len(pages) >= 2
    assert {f"{run}.{number}" for number in range(100_010)} <= counts.keys()
