"""A nats-server with JetStream as a child process, and how to find one that runs already."""

import asyncio
import logging
import os
import secrets
import socket
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from gymq.cluster.server.address import HOST, client_url, hold_port
from gymq.cluster.server.config import render_config
from gymq.cluster.server.probe import health_problem, read_info
from gymq.cluster.server.process import ServerProcess, binary_version, find_binary
from gymq.cluster.server.store import ServerRecord, Store
from gymq.processes.failing import OnFailure, OnFailureAwait

log = logging.getLogger("gymq.server")

_LOOK_EVERY_S = 10.0  # whether the server met a full disk


class EmbeddedServer:
    """A nats-server with JetStream on disk in a store folder, for processes of this user on this machine.

    Use it with `async with`, or `start()` and `stop()`. After the server ended (see `wait`), `start()` starts it again
    with the same URL, so clients find it again. It may be started and stopped from different event loops. It is killed
    when this process ends without stopping it (Linux), so start it from a thread that lives as long as the process.
    """

    def __init__(self, store_dir: Path, *, gives_way: bool = False) -> None:
        """Describe the server; `start` starts it.

        Args:
            store_dir: folder of the store, created if missing. One server at a time may use it.
            gives_way: it only shows what is stored: anyone who starts another server on the store waits for this one
                to be stopped, see `wanted`.
        """
        self._store = Store(store_dir)
        self._gives_way = gives_way
        self._port: int | None = None  # chosen at the first start, and kept
        self._held: socket.socket | None = None  # on the port, so that it is free when the server starts again
        self._password = ""
        self._process: ServerProcess | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def url(self) -> str:
        """URL for clients. It contains the password: show it through `redact` only."""
        assert self._port is not None
        return client_url(self._port, self._password)

    @property
    def pid(self) -> int:
        """Process id of the nats-server."""
        assert self._process is not None
        return self._process.pid

    async def start(self, deadline_s: float = 10.0) -> None:
        """Start the server and wait until it serves and has all its streams back.

        Args:
            deadline_s: how long that may take with an empty store; every GB in the store adds a minute.

        Raises:
            UsageError: the store is in use or damaged, the port is taken, the disk is full, nats-server is missing or
                too old, or the server is not ready in time. Nothing is left running then.
        """
        begun = time.monotonic()
        binary = find_binary()
        version = binary_version(binary)
        lock = await self._store.acquire(gives_way=self._gives_way)
        try:
            # A minute for a GB is several times what it takes after a kill -9, in small messages too.
            deadline = begun + deadline_s + self._store.used_bytes() * 60 / 2**30
            self._password = self._store.make_password()
            with OnFailure(self._release_port):
                port = self._hold_port()
                self._process = await self._start_process(port, binary, version, lock, deadline)
        finally:
            # From here on the server alone holds the lock.
            os.close(lock)

    def _hold_port(self) -> int:
        if self._held is None:
            self._held = hold_port(self._port)
            self._port = int(self._held.getsockname()[1])
        assert self._port is not None
        return self._port

    def _release_port(self) -> None:
        if self._held is not None:
            self._held.close()
            self._held = None

    async def _start_process(
        self, port: int, binary: Path, version: tuple[int, int, int], lock: int, deadline: float
    ) -> ServerProcess:
        name = f"gymq-{secrets.token_hex(8)}"
        monitor_password = secrets.token_urlsafe(32)
        config = render_config(
            server_name=name,
            version=version,
            port=port,
            password=self._password,
            monitor_password=monitor_password,
            max_file_bytes=self._store.file_limit(),
        )
        self._store.write_config(config)
        after_kill = self._store.read_record() is not None
        process = ServerProcess(self._store, binary, lock, name, self._password)
        async with OnFailureAwait(process.kill):
            await self._until_ready(process, port, monitor_password, deadline)
            for line in process.store_warnings(after_kill=after_kill):
                log.warning("%s: messages may be missing, nats-server says: %s", self._store.folder, line)
            record = ServerRecord(
                server_name=name,
                url=f"nats://{HOST}:{port}",
                host=HOST,
                port=port,
                pid=process.pid,
                owner_pid=os.getpid(),
                version=".".join(map(str, version)),
                started=datetime.now(UTC).isoformat(timespec="seconds"),
                gives_way=self._gives_way,
            )
            self._store.write_record(record)
        return process

    async def _until_ready(self, process: ServerProcess, port: int, monitor_password: str, deadline: float) -> None:
        while problem := await self._problem(process.name, port, monitor_password):
            if process.exit_status is not None:
                raise process.exit_error()
            if "could not be recovered" in problem:
                reason = (
                    f"The store folder {self._store.folder} is damaged ({problem}):"
                    " restore it from a copy, or move it away to start with an empty one."
                )
                raise process.error(reason)
            if time.monotonic() >= deadline:
                reason = f"The server was not ready in time ({problem}): the machine or its disk may be too busy."
                raise process.error(reason)
            await asyncio.sleep(0.01)

    async def _problem(self, name: str, port: int, monitor_password: str) -> str | None:
        """Return what is missing until the server can be used, or None."""
        probe_s = 0.2  # Another program that has our port may accept the connection and say nothing.
        # By name: if another server has this port already, ours is about to give up.
        info = await read_info(HOST, port, probe_s)
        if info is None or info.server_name != name:
            return f"it does not serve on port {port} yet"
        return await health_problem(HOST, port, monitor_password, probe_s)

    async def wait(self) -> int:
        """Wait until the server ends, and return its exit status: negative is the number of the signal it died from.

        A stream that met a full disk stores nothing more, however much room there is later, until its server is started
        again. So the server is ended then.
        """
        process = self._process
        assert process is not None
        ended = asyncio.ensure_future(process.ended())
        had_room = False
        try:
            while not (await asyncio.wait({ended}, timeout=_LOOK_EVERY_S))[0]:
                has_room = self._store.has_room()
                if process.met_full_disk() and had_room and has_room:
                    log.warning("nats-server met a full disk that has room again; it stores nothing until a restart")
                    await process.stop()
                had_room = has_room
            return ended.result()
        finally:
            ended.cancel()

    async def wanted(self) -> None:
        """Wait until another process asks for the store, which it does of a server that gives way."""
        while not self._store.is_wanted():  # noqa: ASYNC110
            await asyncio.sleep(0.1)

    async def stop(self, deadline_s: float = 10.0) -> None:
        """End the server: it closes its files; after `deadline_s` it is killed. Does nothing if it does not run.

        Raises:
            UsageError: it cannot even be killed, or its files cannot be reached any more.
        """
        if self._process is None:
            return
        # First of all, so that no other command finds the server and joins it while it ends.
        try:
            self._store.remove_record(self._process.name)
        finally:
            await self._process.stop(deadline_s)
            self._process = None
            self._release_port()


async def find_running(store_dir: Path, *, for_reading: bool = False) -> str | None:
    """Return the URL (with the password) of the server that now runs on this store, or None.

    The server itself is asked, so what a killed server left behind does not count as a running one.

    Args:
        for_reading: whether a server counts that only shows what is stored, and gives way to those that do more.

    Raises:
        UsageError: the store belongs to another user.
    """
    store = Store(store_dir)
    record = store.read_record()
    if record is None or (record.gives_way and not for_reading):
        return None
    # A healthy server on loopback answers within milliseconds.
    info = await read_info(record.host, record.port, 1.0)
    if info is None or info.server_name != record.server_name:
        return None
    password = store.read_password()
    return client_url(record.port, password) if password else None


async def silent_owner(store_dir: Path) -> str | None:
    """Return the process whose server has this store and was not found by `find_running`; None: there is none.

    Raises:
        UsageError: the store belongs to another user.
    """
    store = Store(store_dir)
    record = store.read_record()
    return None if record is not None and record.gives_way else await store.owner()


def is_gone(store_dir: Path, url: str) -> bool:
    """Return whether a server of this store was stopped, or one at another address took its place.

    One that died, and is started again by the process that owns it, has the same address.

    Args:
        url: as `find_running` returned it.

    Raises:
        UsageError: the store belongs to another user.
    """
    record = Store(store_dir).read_record()
    return record is None or not url.endswith(f"@{HOST}:{record.port}")
