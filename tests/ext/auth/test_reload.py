"""Changing a password and the permissions of a server that keeps running."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gymq.bus import Bus, BusError, streams
from tests.support.waiting import until

from .conftest import RoleServer


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[RoleServer]:
    made = RoleServer(tmp_path / "auth")
    await asyncio.to_thread(made.start)
    operator = await Bus.connect(made.url_of("operator"), role="operator", name="make streams")
    await streams.ensure(operator.js, [])
    await operator.close()
    yield made
    made.stop()


async def test_a_changed_password_shuts_out_the_old_one_and_nobody_else(server: RoleServer) -> None:
    old_url = server.url_of("client")
    client = await Bus.connect(old_url, role="client", name="test")
    services = await Bus.connect(server.url_of("services"), role="services", name="test")
    (server.folder / "client.password").unlink()
    server.init(force=True)
    await asyncio.to_thread(server.reload)
    await until(lambda: not client.is_connected)
    with pytest.raises(BusError):
        await Bus.connect(old_url, role="client", name="test", timeout_s=1.0)
    assert services.is_connected
    assert services.reconnects == 0
    assert (await services.js.store("gym.runs.r", b"x")).seq == 1
    again = await Bus.connect(server.url_of("client"), role="client", name="test")
    stored = await again.js.last(streams.RUNS, "gym.runs.r")
    assert stored is not None
    assert stored.data == b"x"
    for bus in (client, services, again):
        await bus.close()


async def test_permissions_are_renewed_while_the_server_runs(server: RoleServer) -> None:
    configuration = server.folder / "nats-server.conf"
    wanted = configuration.read_text()
    configuration.write_text(wanted.replace('"gym.runs.*", ', ""))
    await asyncio.to_thread(server.reload)
    client = await Bus.connect(server.url_of("client"), role="client", name="test")
    js = client.js
    with pytest.raises(BusError, match="does not let"):
        await js.store("gym.runs.r", b"x")
    server.init(force=True)
    assert configuration.read_text() == wanted
    await asyncio.to_thread(server.reload)
    assert (await js.store("gym.runs.r", b"x", timeout_s=10.0)).seq == 1
    await client.close()
