"""A connection recovers, or ends, whatever its server does: stops to read, disconnects at the worst moment, refuses."""

import asyncio
import math
from collections.abc import AsyncIterator
from typing import Self

import pytest

from gymq.bus import Bus, BusError, Msg, client, connection
from gymq.bus.client import MendedClient
from gymq.bus.connection import Connection
from gymq.bus.errors import TooLarge
from tests.support.waiting import DEADLINE_S, until

INFO = b'INFO {"server_id": "x", "version": "2.12.0", "max_payload": 8388608, "headers": true}\r\n'
MEGABYTE = 1 << 20


class ScriptedServer:
    """A NATS server without messages; its connections can be frozen and cut."""

    def __init__(self) -> None:
        self.num_connections = 0
        self.num_open = 0
        self.num_frozen = 0  # connections, the oldest first, of which nothing is read any more
        self.cut_at_ping = False
        self.num_pongs = math.inf  # that are still sent
        self.info = INFO
        self.subjects: dict[bytes, bytes] = {}  # that the newest connection subscribes to, by number
        self._writer: asyncio.StreamWriter | None = None
        self._clients: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        await self.start(0)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"nats://127.0.0.1:{self.port}"
        return self

    async def start(self, port: int) -> None:
        """Take connections."""
        self._server = await asyncio.start_server(self._on_client, "127.0.0.1", port)

    def stop(self) -> None:
        """Take no more connections, and end the newest one."""
        self._server.close()
        self.cut()

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._clients:
            task.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)

    def say(self, line: bytes) -> None:
        """Send a line to the newest client."""
        assert self._writer is not None
        self._writer.write(line)

    def cut(self) -> None:
        """End the newest connection."""
        assert self._writer is not None
        self._writer.transport.abort()

    async def _on_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        self.num_connections += 1
        self.num_open += 1
        number, self._writer, self.subjects = self.num_connections, writer, {}
        try:
            writer.write(self.info)
            while line := await reader.readline():
                if number <= self.num_frozen:
                    await asyncio.Event().wait()
                command = line.split()
                if command[0] == b"PUB":
                    await reader.readexactly(int(command[-1]) + 2)
                else:
                    self._handle(command)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self.num_open -= 1
            writer.transport.abort()

    def _handle(self, command: list[bytes]) -> None:
        match command:
            case [b"PING"]:
                if self.cut_at_ping:
                    self.cut_at_ping = False
                    self.cut()
                elif self.num_pongs > 0:
                    self.num_pongs -= 1
                    self.say(b"PONG\r\n")
            case [b"SUB", subject, *_, number]:
                self.subjects[number] = subject
            case [b"UNSUB", number, *_]:
                self.subjects.pop(number, None)


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with ScriptedServer() as running:
        yield running


@pytest.fixture
async def frozen_bus(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bus]:
    """A connection whose server does not read what is sent, which is more than the system keeps for it."""
    monkeypatch.setattr(client, "CLOSE_S", 0.05)
    bus = await Bus.connect(server.url, role="test", name="test")
    server.num_frozen = 1
    for _ in range(32):
        await bus.publish("x", bytes(MEGABYTE))
    yield bus
    monkeypatch.setattr(Connection.flush, "__defaults__", (0.1,))
    monkeypatch.setattr(bus._nc, "_flush_timeout", 0.1)
    monkeypatch.setattr(connection, "FLUSH_TIMEOUT_S", 0.1)
    await asyncio.wait_for(bus.close(), DEADLINE_S)
    assert bus.lost.is_set()


async def test_a_try_to_connect_that_is_cancelled_leaves_nothing_running(server: ScriptedServer) -> None:
    server.num_pongs = 1
    connecting = asyncio.create_task(Bus.connect(server.url, role="test", name="test"))
    await until(lambda: server.subjects)  # it is connected, and waits until its subscription is in force
    connecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await connecting
    await until(lambda: server.num_open == 0)


async def test_a_server_that_reads_nothing_is_not_waited_for_when_its_connection_is_replaced(
    server: ScriptedServer, frozen_bus: Bus
) -> None:
    await frozen_bus._nc.force_reconnect()
    await until(lambda: server.num_connections == 2 and frozen_bus.is_connected)


async def test_a_server_that_reads_nothing_is_noticed_however_many_wait_to_send(
    server: ScriptedServer, frozen_bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    publishing = await _too_many(frozen_bus)
    monkeypatch.setattr(client, "WATCHDOG_S", 0.2)
    watching = asyncio.create_task(frozen_bus._nc.watch())
    await until(lambda: server.num_connections == 2 and frozen_bus.is_connected)
    watching.cancel()
    async with asyncio.timeout(DEADLINE_S):
        await asyncio.gather(*publishing)


async def test_a_connection_on_which_many_wait_to_send_can_be_closed(frozen_bus: Bus) -> None:
    publishing = await _too_many(frozen_bus)
    assert frozen_bus.is_connected  # and the fixture closes it
    for task in publishing:
        task.cancel()


async def test_a_server_that_reads_nothing_is_not_waited_for_when_its_connection_is_closed(frozen_bus: Bus) -> None:
    assert frozen_bus.is_connected  # and the fixture closes it


async def test_a_flush_that_waits_for_the_socket_can_be_cancelled(frozen_bus: Bus) -> None:
    queue = frozen_bus._nc._flush_queue
    assert queue is not None
    await until(queue.empty)  # the flusher waits for the socket
    flushing = asyncio.create_task(frozen_bus.flush())
    await until(lambda: not queue.empty())
    flushing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await flushing


async def test_a_subscription_that_was_ended_during_an_outage_does_not_come_back(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MendedClient.flush, "__defaults__", (0.5,))
    async with await Bus.connect(server.url, role="test", name="test") as bus:
        ended = await bus.listen("ended", _ignore, group="g")
        kept = await bus.listen("kept", _ignore)
        await bus.flush()
        assert {b"ended", b"kept"} <= set(server.subjects.values())
        server.cut_at_ping = True
        await bus.unsubscribe(ended)
        await until(lambda: server.num_connections == 2 and bus.is_connected)
        await bus.flush()
        assert b"kept" in server.subjects.values()
        assert b"ended" not in server.subjects.values()
        await bus.unsubscribe(kept)
        assert b"kept" not in server.subjects.values()


async def test_whatever_goes_wrong_while_it_reconnects_it_tries_again(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await Bus.connect(server.url, role="test", name="test") as bus:
        begin = bus._nc._process_connect_init
        problems = [RuntimeError("unable to perform operation; the handler is closed")]  # of uvloop, after a reset

        async def begin_at_the_second_try() -> None:
            if problems:
                raise problems.pop()
            await begin()

        monkeypatch.setattr(bus._nc, "_process_connect_init", begin_at_the_second_try)
        server.cut()
        await until(lambda: bus.reconnects == 1)


async def test_a_server_that_takes_only_small_messages_is_refused_with_the_setting(server: ScriptedServer) -> None:
    server.info = INFO.replace(b"8388608", b"65535")
    with pytest.raises(BusError, match=r"takes messages of up to 65,535 bytes.*set max_payload .* to 8MB"):
        await Bus.connect(server.url, role="test", name="test")
    await until(lambda: server.num_open == 0)


async def test_a_server_that_comes_back_with_another_limit_gets_no_larger_messages(server: ScriptedServer) -> None:
    async with await Bus.connect(server.url, role="test", name="test") as bus:
        server.info = INFO.replace(b"8388608", b"1048576")
        server.cut()
        await until(lambda: bus.reconnects == 1)
        with pytest.raises(TooLarge, match="limit of 1044480"):
            await bus.publish("x", bytes(MEGABYTE))


async def test_while_the_server_is_away_that_is_logged_once_a_minute(
    server: ScriptedServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await Bus.connect(server.url, role="test", name="test") as bus:
        (known,) = bus._nc._server_pool
        for num_outages in (1, 2):
            server.stop()
            await until(lambda: known.reconnects > 3)
            assert caplog.messages.count("nats: connection refused") == num_outages
            await server.start(server.port)
            await until(lambda: bus.reconnects == num_outages)  # noqa: B023
        monkeypatch.setattr(connection, "LOG_AGAIN_S", 0.0)
        server.stop()
        await until(lambda: caplog.messages.count("nats: connection refused") > 4)
        await server.start(server.port)
        await until(lambda: bus.reconnects == 3)


async def test_a_connection_that_the_server_ends_for_good_is_lost_even_with_something_left_to_send(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus = await Bus.connect(server.url, role="test", name="test")
    nats = bus._nc

    def closed(_: list[bytes]) -> None:
        raise RuntimeError("unable to perform operation; the handler is closed")

    monkeypatch.setattr(nats._transport, "writelines", closed)
    nats._pending.append(b"PUB x 0\r\n\r\n")
    nats._pending_data_size += 11
    server.say(b"-ERR 'User Authentication Expired'\r\n")
    await asyncio.wait_for(bus.lost.wait(), DEADLINE_S)


async def _too_many(bus: Bus) -> list[asyncio.Task[None]]:
    """Publish more than is buffered, and more often than the client library keeps in its line to the socket."""
    line = bus._nc._flush_queue
    assert line is not None
    publishing = [asyncio.create_task(bus.publish("x", bytes(MEGABYTE))) for _ in range(66)]
    publishing += [asyncio.create_task(bus.publish("x", b"")) for _ in range(2000)]
    await until(line.full)
    return publishing


def _ignore(_: Msg) -> None:
    pass
