"""The connection: bounded requests, outages, messages that should not have been sent."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

import nats
import pytest
from nats.aio.msg import Msg

from gymq.bus import Bus, BusError, NoAnswer, NoResponders, NoServer, TooLarge
from gymq.bus import bus as bus_module
from gymq.bus.connection import HEADER_ROOM_BYTES, OUTAGE_BUFFER_BYTES
from gymq.cluster.server import EmbeddedServer
from tests.support.waiting import DEADLINE_S, until

Kill = Callable[[], Awaitable[None]]


async def echo(bus: Bus, subject: str, group: str = "") -> list[bytes]:
    """Answer requests with their own body; the bodies so far."""
    seen = []

    async def answer(message: Msg) -> None:
        seen.append(message.data)
        if message.reply:
            await bus.publish(message.reply, message.data)

    await bus.subscribe(subject, answer, group=group)
    return seen


async def test_a_request_gets_its_reply(bus: Bus, other_bus: Bus, run: str) -> None:
    await echo(other_bus, run)
    await other_bus.flush()
    assert (await bus.request(run, b"body", timeout_s=10)).data == b"body"


async def test_a_thousand_requests_at_once_get_their_own_replies(bus: Bus, other_bus: Bus, run: str) -> None:
    await echo(other_bus, run)
    await other_bus.flush()
    replies = await asyncio.gather(*(bus.request(run, b"%d" % n, timeout_s=20) for n in range(1000)))
    assert [int(reply.data) for reply in replies] == list(range(1000))


async def test_a_request_that_nobody_serves_fails_at_once(bus: Bus, run: str) -> None:
    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(NoResponders, match=f"no worker serves {run}"):
            await bus.request(run, b"", timeout_s=3600)


async def test_a_request_that_nobody_answers_fails_at_its_timeout(bus: Bus, run: str) -> None:
    async def ignore(message: Msg) -> None: ...

    await bus.subscribe(run, ignore)
    with pytest.raises(NoAnswer, match=f"no answer on {run} within 0.1 s"):
        await bus.request(run, b"", timeout_s=0.1)


async def test_a_reply_that_comes_too_late_goes_to_who_cares_for_late_replies(bus: Bus, run: str) -> None:
    late = []
    bus.on_late_reply(lambda message: late.append(message.data))

    async def slow(message: Msg) -> None:
        await asyncio.sleep(0.3)
        await bus.publish(message.reply, b"late")

    await bus.subscribe(run, slow)
    with pytest.raises(NoAnswer):
        await bus.request(run, b"", timeout_s=0.1)
    await until(lambda: late == [b"late"])


async def test_a_cancelled_request_leaves_nothing_behind(bus: Bus, run: str) -> None:
    late = []
    bus.on_late_reply(lambda message: late.append(message.data))
    arrived: asyncio.Queue[Msg] = asyncio.Queue()

    async def keep(message: Msg) -> None:
        arrived.put_nowait(message)

    await bus.subscribe(run, keep)
    request = asyncio.create_task(bus.request(run, b"", timeout_s=60))
    message = await asyncio.wait_for(arrived.get(), DEADLINE_S)
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    await bus.publish(message.reply, b"x")
    await until(lambda: late == [b"x"])


async def test_a_body_of_the_limit_travels(bus: Bus, run: str) -> None:
    await echo(bus, run)
    body = bytes(bus.max_body_bytes)
    headers = {"Long": "x" * (HEADER_ROOM_BYTES - 100)}
    assert (await bus.request(run, body, timeout_s=20, headers=headers)).data == body


async def test_a_larger_body_is_refused_and_the_connection_lives(bus: Bus, run: str) -> None:
    await echo(bus, run)
    body = bytes(bus.max_body_bytes + 1)
    with pytest.raises(TooLarge, match=f"a body of {len(body)} bytes exceeds the server's limit of {len(body) - 1}"):
        await bus.publish(run, body)
    with pytest.raises(TooLarge):
        await bus.request(run, body, timeout_s=60)
    assert (await bus.request(run, b"still here", timeout_s=20)).data == b"still here"
    assert bus.reconnects == 0


async def test_each_message_goes_to_one_member_of_a_group(bus: Bus, other_bus: Bus, run: str) -> None:
    members = [await echo(member, run, group="g") for member in (bus, bus, other_bus, other_bus)]
    await other_bus.flush()
    await asyncio.gather(*(bus.request(run, b"%d" % n, timeout_s=20) for n in range(100)))
    assert sorted(int(body) for member in members for body in member) == list(range(100))


async def test_messages_are_handled_in_order(bus: Bus, other_bus: Bus, run: str) -> None:
    seen = await echo(other_bus, run)
    await other_bus.flush()
    for number in range(1000):
        await bus.publish(run, b"%d" % number)
    await until(lambda: len(seen) == 1000)
    assert seen == [b"%d" % number for number in range(1000)]


async def test_a_handler_that_raises_gets_the_next_message(bus: Bus, run: str) -> None:
    async def picky(message: Msg) -> None:
        if message.data == b"bad":
            raise RuntimeError("bad")
        await bus.publish(message.reply, b"good")

    await bus.subscribe(run, picky)
    with pytest.raises(NoAnswer):
        await bus.request(run, b"bad", timeout_s=0.1)
    assert (await bus.request(run, b"", timeout_s=20)).data == b"good"


async def test_after_a_flush_a_subscription_is_in_force(bus: Bus, other_bus: Bus, run: str) -> None:
    for number in range(300):
        await echo(other_bus, f"{run}.{number}")
        await other_bus.flush()
        await bus.request(f"{run}.{number}", b"", timeout_s=20)


async def test_of_messages_sent_while_unsubscribing_each_is_handled_or_has_no_responder(
    bus: Bus, other_bus: Bus, run: str
) -> None:
    outcomes = []

    async def ask_on(subject: str) -> None:
        try:
            while True:
                await bus.request(subject, b"", timeout_s=2)
        except BusError as error:
            outcomes.append(type(error))

    for number in range(50):
        subject = f"{run}.{number}"

        async def answer(message: Msg) -> None:
            await other_bus.publish(message.reply, b"")

        subscription = await other_bus.subscribe(subject, answer)
        await other_bus.flush()
        asking = [asyncio.create_task(ask_on(subject)) for _ in range(20)]
        await asyncio.sleep(0.01)
        await other_bus.unsubscribe(subscription)
        await asyncio.gather(*asking)
    assert set(outcomes) == {NoResponders}


async def test_after_unsubscribing_only_what_has_arrived_is_handled(bus: Bus, other_bus: Bus, run: str) -> None:
    seen = []

    async def slowly(message: Msg) -> None:
        await asyncio.sleep(0.01)
        seen.append(int(message.data))

    subscription = await bus.subscribe(run, slowly)
    for number in range(20):
        await bus.publish(run, b"%d" % number)
    await bus.unsubscribe(subscription)
    assert seen == list(range(20))
    with pytest.raises(NoResponders):
        await other_bus.request(run, b"20", timeout_s=20)


@pytest.mark.parametrize(
    "url", ["nats://u:secret@127.0.0.1:9", "nats://u:secret@no-such-host.invalid:4222", "ftp://x", ":"]
)
async def test_an_address_where_nothing_answers_is_a_sentence_without_the_password(url: str) -> None:
    with pytest.raises(BusError, match="cannot connect to NATS at ") as refused:
        await Bus.connect(url, role="test", name="test", timeout_s=0.5)
    assert "secret" not in str(refused.value)


async def test_a_server_that_nothing_starts_is_missed_before_the_time_limit() -> None:
    for url in ("nats://127.0.0.1:9", "nats://127.0.0.1:9,nats://localhost:9"):
        with pytest.raises(NoServer, match=r": connection refused$"):
            await asyncio.wait_for(
                Bus.connect(url, role="test", name="test", timeout_s=1000, is_starting=False), DEADLINE_S
            )


async def test_a_wrong_password_is_a_sentence_without_it(shared_url: str) -> None:
    address = shared_url.rpartition("@")[2]
    with pytest.raises(BusError, match=r"Authorization Violation.*USER:PASSWORD@ before") as refused:
        await Bus.connect(f"nats://gymq:secret@{address}", role="test", name="test", timeout_s=2)
    assert "secret" not in str(refused.value)


async def test_a_try_to_connect_that_fails_closes_its_socket() -> None:
    ended = asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        ended.set()
        writer.close()

    async with await asyncio.start_server(say_nothing, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(BusError, match="cannot connect to NATS at ") as refused:
            await Bus.connect(f"nats://127.0.0.1:{port}", role="test", name="test", timeout_s=0.2)
        await asyncio.wait_for(ended.wait(), DEADLINE_S)
    assert refused.value.__traceback__ is not None  # keeps the connection from being collected


async def test_one_of_several_addresses_is_enough(shared_url: str) -> None:
    bus = await Bus.connect(f"nats://127.0.0.1:9,{shared_url}", role="test", name="test")
    assert bus.is_connected
    await bus.close()


async def test_a_request_in_flight_survives_the_restart_of_the_server(
    own_server: EmbeddedServer, own_bus: Bus, connect: Callable[[str], Awaitable[Bus]], kill_server: Kill
) -> None:
    worker = await connect(own_server.url)
    arrived: asyncio.Queue[Msg] = asyncio.Queue()

    async def keep(message: Msg) -> None:
        arrived.put_nowait(message)

    await worker.subscribe("slow", keep)
    await worker.flush()
    request = asyncio.create_task(own_bus.request("slow", b"x", timeout_s=60))
    message = await asyncio.wait_for(arrived.get(), DEADLINE_S)
    await kill_server()
    await until(lambda: not own_bus.is_connected and not worker.is_connected)
    await own_server.start()
    await until(lambda: own_bus.reconnects == 1)
    await worker.publish(message.reply, b"answer")
    assert (await asyncio.wait_for(request, DEADLINE_S)).data == b"answer"


async def test_what_is_sent_while_the_server_is_away_arrives_when_it_is_back(
    own_server: EmbeddedServer, own_bus: Bus, kill_server: Kill
) -> None:
    seen = await echo(own_bus, "x")
    await kill_server()
    await until(lambda: not own_bus.is_connected)
    for number in range(100):
        await own_bus.publish("x", b"%d" % number)
    await own_server.start()
    await until(lambda: len(seen) == 100)
    assert seen == [b"%d" % number for number in range(100)]


async def test_what_is_kept_during_an_outage_is_bounded(own_bus: Bus, kill_server: Kill) -> None:
    await kill_server()
    await until(lambda: not own_bus.is_connected)
    body = bytes(8 << 19)
    sent = 0
    with contextlib.suppress(BusError):
        while sent <= 2 * OUTAGE_BUFFER_BYTES:
            await own_bus.publish("x", body)
            sent += len(body)
    assert OUTAGE_BUFFER_BYTES / 2 < sent <= OUTAGE_BUFFER_BYTES


async def test_everybody_who_asked_hears_of_a_reconnect(
    own_server: EmbeddedServer, own_bus: Bus, kill_server: Kill
) -> None:
    heard = []

    def fail() -> None:
        raise RuntimeError("broken callback")

    own_bus.on_reconnect(fail)
    own_bus.on_reconnect(lambda: heard.append(own_bus.is_connected))
    await kill_server()
    await until(lambda: not own_bus.is_connected)
    assert not heard
    await own_server.start()
    await until(lambda: heard)
    assert heard == [True]


async def test_waiting_for_the_connection_ends_when_it_is_back_or_at_the_timeout(
    own_server: EmbeddedServer, own_bus: Bus, kill_server: Kill
) -> None:
    assert await own_bus.until_connected(0.0)
    await kill_server()
    await until(lambda: not own_bus.is_connected)
    assert not await own_bus.until_connected(0.1)
    waiting = asyncio.create_task(own_bus.until_connected(60))
    await own_server.start()
    assert await asyncio.wait_for(waiting, DEADLINE_S)


async def test_closing_without_a_server_ends(own_bus: Bus, kill_server: Kill) -> None:
    await kill_server()
    await until(lambda: not own_bus.is_connected)
    async with asyncio.timeout(DEADLINE_S):
        await own_bus.close()
    assert own_bus.lost.is_set()


async def test_closing_sends_what_was_published(bus: Bus, shared_url: str, run: str) -> None:
    seen = await echo(bus, run)
    await bus.flush()
    sender = await Bus.connect(shared_url, role="test", name="test")
    for number in range(500):
        await sender.publish(run, b"%d" % number)
    await sender.close()
    await until(lambda: len(seen) == 500)


async def test_a_closed_connection_says_so(shared_url: str) -> None:
    closed = await Bus.connect(shared_url, role="test", name="test")
    await closed.close()
    with pytest.raises(BusError, match="cannot publish to x"):
        await closed.publish("x", b"")
    with pytest.raises(BusError):
        await closed.request("x", b"", timeout_s=60)


async def test_a_subject_that_is_no_text_deafens_nobody_for_long(
    shared_url: str, connect: Callable[[str], Awaitable[Bus]], run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a subject ends the read loop of nats-py without a word; the watchdog notices."""
    monkeypatch.setattr("gymq.bus.client.WATCHDOG_S", 1.0)
    victim = await connect(shared_url)
    seen = await echo(victim, f"{run}.*")
    await victim.flush()
    host, port = shared_url.rpartition("@")[2].split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    user, password = shared_url.removeprefix("nats://").rpartition("@")[0].split(":")
    writer.write(b'CONNECT {"user": "%s", "pass": "%s"}\r\n' % (user.encode(), password.encode()))
    writer.write(b"PUB %s.\xff\xfe 1\r\nx\r\nPING\r\n" % run.encode())
    async with asyncio.timeout(DEADLINE_S):
        while await reader.readline() != b"PONG\r\n":
            pass
    writer.close()
    hearer = await connect(shared_url)
    async with asyncio.timeout(DEADLINE_S):
        while b"heard" not in seen:
            with contextlib.suppress(BusError):
                await hearer.request(f"{run}.x", b"heard", timeout_s=0.2)


async def test_no_password_is_logged(caplog: pytest.LogCaptureFixture, own_server: EmbeddedServer) -> None:
    caplog.set_level(logging.DEBUG)
    url = own_server.url
    password = url.removeprefix("nats://gymq:").rpartition("@")[0]
    bus = await Bus.connect(url, role="test", name="test")
    await own_server.stop()
    await until(lambda: not bus.is_connected)
    await asyncio.sleep(0.6)  # long enough to try to connect again
    await bus.close()
    await own_server.start()
    assert caplog.records
    assert password not in caplog.text


async def test_what_another_client_sends_is_read_too(bus: Bus, shared_url: str, run: str) -> None:
    await echo(bus, run)
    await bus.flush()
    async with await nats.connect(shared_url) as client:
        assert (await client.request(run, b"hi", timeout=DEADLINE_S)).data == b"hi"


async def test_no_more_is_sent_to_be_stored_than_the_server_has_to_acknowledge_at_a_time(
    bus: Bus, other_bus: Bus, run: str
) -> None:
    bus.storing = asyncio.Semaphore(3)
    arrived: list[Msg] = []

    async def take(message: Msg) -> None:
        arrived.append(message)

    await other_bus.subscribe(run, take)
    await other_bus.flush()
    js = bus.js
    storing = [asyncio.create_task(js.publish_with_retry(run, b"x", {}, patience_s=60.0)) for _ in range(20)]
    for number in range(20):
        await until(lambda: len(arrived) > number)  # noqa: B023
        await bus.flush()
        await other_bus.flush()
        assert number < len(arrived) <= number + 3
        await other_bus.publish(arrived[number].reply, b'{"stream": "S", "seq": 1}')
    assert len(await asyncio.gather(*storing)) == 20


async def test_closing_survives_that_somebody_who_waited_for_it_was_cancelled(shared_url: str) -> None:
    closing = await Bus.connect(shared_url, role="test", name="closing")
    transport = closing._nc._transport
    assert transport is not None
    waiting = asyncio.create_task(transport.wait_closed())
    await asyncio.sleep(0)
    waiting.cancel()
    await closing.close()
    assert closing.lost.is_set()


async def test_a_reader_tries_again_until_its_patience_ends(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bus_module, "READ_AGAIN_S", 0.0)
    problems = [BusError("away"), BusError("away")]

    async def read() -> str:
        if problems:
            raise problems.pop()
        return "found"

    assert await bus.retry_read(read) == "found"
    problems.append(BusError("away"))
    with pytest.raises(BusError, match="away; start it again"):
        await bus.retry_read(read, hint="start it again", patience_s=-1.0)


async def test_a_closed_connection_ends_a_reader_at_once(other_bus: Bus) -> None:
    await other_bus.close()

    async def read() -> None:
        raise BusError("closed")

    with pytest.raises(BusError, match="closed; start it again"):
        await other_bus.retry_read(read, hint="start it again")


async def test_what_is_published_on_a_closed_transport_is_sent_later(bus: Bus, run: str) -> None:
    """When the server is killed, a moment passes in which the transport is closed and the client still connected."""
    heard: list[bytes] = []
    await bus.listen(f"test.{run}", lambda message: heard.append(message.data))
    await bus.flush()
    client = bus._nc
    assert client._flusher_task is not None
    client._flusher_task.cancel()
    await until(client._flusher_task.done)

    def closed(payload: list[bytes]) -> None:
        raise RuntimeError("unable to perform operation; the handler is closed")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client._transport, "writelines", closed)
        await bus.publish(f"test.{run}", b"first")
    await bus.publish(f"test.{run}", b"second")
    await until(lambda: heard == [b"first", b"second"])
