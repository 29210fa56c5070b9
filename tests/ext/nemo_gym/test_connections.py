"""H11: a flood of connections costs a line in the log, and a client that sends something is served."""

import asyncio
import json
import os
import resource
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from gymq.ext.http import connections
from gymq.ext.http.connections import Listener
from tests.support.ports import free_port

HOST = "127.0.0.1"
HAS_IPV6 = os.path.exists("/proc/net/if_inet6")
PATIENCE_S = 600.0
POST = b"POST /run HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
BEGUN = {"nothing": b"", "half a header": POST, "half a body": POST + b"Content-Length: 9\r\n\r\n{"}
SERVER = """
import asyncio, resource, sys
from aiohttp import web
from gymq.cluster import logs
from gymq.ext.http import connections

async def main(limit, kept_free):
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    connections.KEPT_FREE = kept_free
    logs.configure("test", "info")
    async def health(request):
        return web.Response(text="ok")
    listener = connections.Listener()
    app = web.Application(middlewares=[listener.serving])
    app.router.add_get("/health", health)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await listener.open(runner.server, "127.0.0.1", 0)
    print(listener.ports[0], flush=True)
    await asyncio.Event().wait()

asyncio.run(main(*map(int, sys.argv[1:])))
"""


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """The clients of a flood need as many as its server."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] not in (-1, resource.RLIM_INFINITY) and before[1] < 8192:
        pytest.skip("the hard limit of open files is too low")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], 8192), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@asynccontextmanager
async def command(*arguments: str, log: Path, **kwargs: Any) -> AsyncIterator[str]:
    """A Python program while the block runs; gives the first line that it prints."""
    with log.open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            sys.executable, *arguments, stdout=asyncio.subprocess.PIPE, stderr=stderr, **kwargs
        )
        try:
            assert process.stdout is not None
            yield (await asyncio.wait_for(process.stdout.readline(), PATIENCE_S)).decode()
        finally:
            if process.returncode is None:
                os.kill(process.pid, signal.SIGTERM)
            await process.wait()


def flood(stack: ExitStack, port: int, num: int, said: bytes) -> None:
    for _ in range(num):
        client = stack.enter_context(socket.create_connection((HOST, port), timeout=PATIENCE_S))
        if said:
            client.sendall(said)


async def health(port: int) -> int:
    timeout = aiohttp.ClientTimeout(total=PATIENCE_S)
    async with aiohttp.ClientSession(timeout=timeout) as session, session.get(f"http://{HOST}:{port}/health") as answer:
        return answer.status


@pytest.mark.parametrize("kept_free", [128, 0])
async def test_where_descriptors_run_out_those_that_say_nothing_make_room(tmp_path: Path, kept_free: int) -> None:
    """With descriptors kept free, and where somebody else has taken them."""
    log = tmp_path / "log"
    async with command("-c", SERVER, "256", str(kept_free), log=log) as line:
        port = int(line)
        with ExitStack() as stack:
            await asyncio.to_thread(flood, stack, port, 400, b"GET /health HTTP/1.1\r\nHost: loc")
            for _ in range(3):
                assert await health(port) == 200
    lines = log.read_text().splitlines()
    assert len(lines) == 1, lines[:5]
    assert "ulimit -n" in lines[0]


@pytest.mark.parametrize(
    ("num", "said"),
    [
        pytest.param(1_100, "nothing", marks=pytest.mark.nightly),
        pytest.param(1_100, "half a header", marks=pytest.mark.nightly),
        (5_000, "half a body"),
    ],
)
async def test_the_command_serves_beside_a_flood(
    shared_url: str, tmp_path: Path, many_descriptors: None, num: int, said: str
) -> None:
    """With the soft limit that most systems give, 1,024."""
    port = free_port(HOST)
    config = tmp_path / "config.yaml"
    model = {"simulated": {"responses_api_models": {"simulated_model": {"entrypoint": "worker.py"}}}}
    config.write_text(json.dumps(model | {"bridge": {"port": port}}))
    low = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (1024, resource.getrlimit(7)[1]));"
    code = f"{low} from gymq.cli import main; main()"
    arguments = ("-c", code, "bridge", f"--config={config}", f"--nats={shared_url}")
    log = tmp_path / "log"
    async with command(*arguments, log=log, cwd=tmp_path) as line:
        assert str(port) in line, log.read_text()
        with ExitStack() as stack:
            await asyncio.to_thread(flood, stack, port, num, BEGUN[said])
            for _ in range(3):
                assert await health(port) == 200
    assert len(log.read_text().splitlines()) < 10


@pytest.fixture
async def listening(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Callable[[], int]]:
    """A listener that gives little time for a header; its application answers after a second's wait or at once."""
    monkeypatch.setattr(connections, "HEAD_S", 0.3)
    monkeypatch.setattr(connections, "SWEEP_EVERY_S", 0.05)

    async def answer(request: web.Request) -> web.Response:
        await asyncio.sleep(float(request.query.get("seconds", 0)))
        return web.Response(text="done")

    listener = Listener()
    app = web.Application(middlewares=[listener.serving])
    app.router.add_get("/", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    assert runner.server is not None
    await listener.open(runner.server, HOST, 0)
    yield lambda: listener.ports[0]
    listener.close()
    await runner.cleanup()


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\nHost: loc"])
async def test_a_connection_without_a_request_is_closed(listening: Callable[[], int], said: bytes) -> None:
    reader, writer = await asyncio.open_connection(HOST, listening())
    writer.write(said)
    with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
        await asyncio.wait_for(reader.readexactly(1), PATIENCE_S)
    writer.close()


async def test_a_connection_that_is_served_or_was_is_kept(listening: Callable[[], int]) -> None:
    reader, writer = await asyncio.open_connection(HOST, listening())
    for seconds in (1, 0):
        writer.write(f"GET /?seconds={seconds} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert b"200 OK" in await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE_S)
        assert await reader.readexactly(4) == b"done"
        # Another connection is closed meanwhile: this one had the time in which it would have been.
        other, silent = await asyncio.open_connection(HOST, listening())
        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
            await asyncio.wait_for(other.readexactly(1), PATIENCE_S)
        silent.close()
    writer.close()


@pytest.mark.skipif(not HAS_IPV6, reason="this machine has no IPv6")
async def test_all_addresses_of_ipv6_are_those_of_ipv4_too() -> None:
    listener = Listener()
    app = web.AppRunner(web.Application())
    await app.setup()
    assert app.server is not None
    await listener.open(app.server, "::", 0)
    for host in (HOST, "::1"):
        _, writer = await asyncio.open_connection(host, listener.ports[0])
        writer.close()
    listener.close()
    await app.cleanup()


async def test_a_port_that_is_taken_and_one_that_is_free() -> None:
    first, second = Listener(), Listener()
    app = web.AppRunner(web.Application())
    await app.setup()
    assert app.server is not None
    await first.open(app.server, HOST, 0)
    with pytest.raises(OSError, match="in use"):
        await second.open(app.server, HOST, first.ports[0])
    port = first.ports[0]
    first.close()
    await second.open(app.server, HOST, port)
    second.close()
    await app.cleanup()
