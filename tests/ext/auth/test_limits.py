"""What a server with roles allows its accounts: enough for a large cluster, and not all that the server has."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest
from nats.errors import ConnectionClosedError

from gymq.bus import Bus, BusError, streams
from gymq.bus.jetstream import JetStreamError

from .conftest import RoleServer
from .raw_client import RawClient


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[RoleServer]:
    """A server that allows three connections, each with twelve subscriptions, and a stream four consumers."""
    made = RoleServer(tmp_path / "auth")
    configuration = made.folder / "nats-server.conf"
    text = configuration.read_text()
    for before, after in (
        ("max_connections: 19900", "max_connections: 3"),
        ("max_subscriptions: 20000", "max_subscriptions: 12"),
        ("max_consumers: 1000", "max_consumers: 4"),
    ):
        assert before in text
        text = text.replace(before, after)
    configuration.write_text(text)
    await asyncio.to_thread(made.start)
    yield made
    made.stop()


async def test_a_connection_too_many_is_refused_in_a_sentence_and_the_others_stay(server: RoleServer) -> None:
    async with AsyncExitStack() as stack:
        roles = ("client", "agent", "model")
        buses = [await Bus.connect(server.url_of(role), role=role, name="test") for role in roles]
        for bus in buses:
            stack.push_async_callback(bus.close)
        with pytest.raises(BusError, match=r"cannot connect to NATS at .*maximum account active connections exceeded"):
            await Bus.connect(server.url_of("client"), role="client", name="test", timeout_s=2.0)
        assert all(bus.is_connected and not bus.reconnects for bus in buses)


async def test_a_subscription_too_many_is_refused_and_other_connections_stay(server: RoleServer) -> None:
    greedy = await RawClient.connect(server.url_of("client"), "client")
    for number in range(12):
        await greedy.hears(f"_INBOX_client.any.{number}")
    async with await Bus.connect(server.url_of("client"), role="client", name="test") as beside:
        assert "maximum subscriptions exceeded" not in server.log.read_text()
        with suppress(ConnectionClosedError):  # the client library closes a connection that meets this limit
            await greedy.hears("_INBOX_client.any.more")
        assert beside.is_connected
        assert not beside.reconnects
        await beside.flush()
    await greedy.close()
    assert server.log.read_text().count("maximum subscriptions exceeded") == 1


async def test_a_stream_has_no_more_consumers_than_it_may(server: RoleServer) -> None:
    async with await Bus.connect(server.url_of("operator"), role="operator", name="test") as bus:
        await streams.ensure(bus.js, ["a"])
        for number in range(4):
            await streams.ensure_consumer(bus.js, streams.ROLLOUTS, f"c{number}", {})
        with pytest.raises(JetStreamError, match="maximum consumers limit reached"):
            await streams.ensure_consumer(bus.js, streams.ROLLOUTS, "more", {})


async def test_there_are_no_streams_but_those_of_gymq_and_as_many_of_a_later_release(server: RoleServer) -> None:
    async with await Bus.connect(server.url_of("operator"), role="operator", name="test") as bus:
        await streams.ensure(bus.js, ["a"])
        num_streams = len(streams.stream_configs())
        with pytest.raises(JetStreamError, match="insufficient memory"):
            await bus.js.api("STREAM.CREATE.MORE", {"name": "MORE", "subjects": ["more"], "storage": "memory"})
        for number in range(num_streams):
            name = f"MORE{number}"
            await bus.js.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [name]})
        with pytest.raises(JetStreamError, match="maximum number of streams reached"):
            await bus.js.api("STREAM.CREATE.LAST", {"name": "LAST", "subjects": ["last"]})
