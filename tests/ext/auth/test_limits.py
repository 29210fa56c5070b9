"""What a server with roles allows its accounts: enough for a large cluster, and not all that the server has."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from gymq.bus import Bus, BusError, streams
from gymq.bus.jetstream import JetStreamError

from .conftest import RoleServer


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[RoleServer]:
    """A server that allows three connections, each with twelve subscriptions."""
    made = RoleServer(tmp_path / "auth")
    configuration = made.folder / "nats-server.conf"
    text = configuration.read_text()
    for before, after in (
        ("max_connections: 19900", "max_connections: 3"),
        ("max_subscriptions: 20000", "max_subs: 12"),
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
