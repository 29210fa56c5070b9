"""A NATS server with the configuration that `gymq auth init` writes, and connections in each role."""

import asyncio
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gymq.bus import Bus, streams
from gymq.cluster.server.probe import read_info
from gymq.cluster.server.process import find_binary
from gymq.ext.auth.command import init
from gymq.ext.auth.roles import ROLES
from tests.support.ports import free_port

from .raw_client import RawClient


class RoleServer:
    """A running nats-server with a user for each role."""

    def __init__(self, folder: Path, *, tls: dict[str, Path] | None = None) -> None:
        self.folder = folder
        self.log = folder.with_suffix(".log")
        self.port = free_port("127.0.0.1")
        self.monitor_port = free_port("127.0.0.1")
        self._tls: dict[str, Any] = {**(tls or {})}
        self.init(force=False)
        self.url = f"{'tls' if tls else 'nats'}://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def init(self, *, force: bool) -> None:
        """Write the configuration."""
        init(folder=self.folder, port=self.port, monitor_port=self.monitor_port, force=force, **self._tls)

    def reload(self) -> None:
        """Have the server read its configuration again."""
        before = self.log.read_text().count("Reloaded server configuration")
        assert self._process is not None
        self._process.send_signal(signal.SIGHUP)
        give_up = time.monotonic() + 10
        while self.log.read_text().count("Reloaded server configuration") == before:
            assert time.monotonic() < give_up, self.log.read_text()
            time.sleep(0.01)

    def start(self) -> None:
        with self.log.open("ab") as log:
            command: list[str | Path] = [find_binary(), "-c", self.folder / "nats-server.conf"]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        give_up = time.monotonic() + 10
        while asyncio.run(read_info("127.0.0.1", self.port, 0.5)) is None:
            assert time.monotonic() < give_up, self.log.read_text()
            time.sleep(0.01)

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(300)

    def password(self, role: str) -> str:
        return (self.folder / f"{role}.password").read_text().strip()

    def passwords(self) -> dict[str, str]:
        return {role.name: self.password(role.name) for role in ROLES}

    def url_of(self, role: str) -> str:
        """The URL with the user of a role."""
        scheme, _, address = self.url.partition("://")
        return f"{scheme}://{role}:{self.password(role)}@{address}"

    def violations(self) -> list[str]:
        """What the server denied so far."""
        return [line for line in self.log.read_text().splitlines() if "Violation" in line]


async def _make_streams(server: RoleServer) -> None:
    bus = await Bus.connect(server.url_of("operator"), role="operator", name="make streams")
    await streams.ensure(bus.js, ["a"])
    await bus.close()


@contextmanager
def running(folder: Path) -> Iterator[RoleServer]:
    """A server with a user for each role and all streams."""
    server = RoleServer(folder)
    server.start()
    try:
        asyncio.run(_make_streams(server))
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def role_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RoleServer]:
    """A server with all streams and no workers, for tests of what it denies."""
    with running(tmp_path_factory.mktemp("roles") / "auth") as server:
        yield server


@pytest.fixture
async def raw(role_server: RoleServer) -> AsyncIterator["RawClients"]:
    """Connections in any role, with nothing of gymq between them and the server."""
    clients = RawClients(role_server)
    yield clients
    await clients.close()


class RawClients:
    def __init__(self, server: RoleServer) -> None:
        self._server = server
        self._clients: list[RawClient] = []

    async def connect(self, role: str) -> RawClient:
        client = await RawClient.connect(self._server.url_of(role), role)
        self._clients.append(client)
        return client

    async def close(self) -> None:
        for client in self._clients:
            await client.close()
