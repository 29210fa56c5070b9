"""What tests share: one real nats-server for all of them, a connection for each, unique names."""

import asyncio
import contextlib
import gc
import importlib
import logging
import os
import secrets
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from gymq.workers.models.openai_model.retry import Tries

from gymq import redaction
from gymq.bus import Bus, streams
from gymq.bus.discovery import is_running
from gymq.bus.jetstream import JetStream
from gymq.cluster.server import EmbeddedServer
from gymq.failures import Retry
from gymq.processes import KillableProcesses
from tests.support.queues import queues_of_runs

# A shell that runs the tests in the background has SIGINT ignored, which all processes that they start would inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)

with contextlib.suppress(ImportError):  # not in the environment of tests/vllm
    from hypothesis import settings

    # A busy machine makes no test fail: the default is a deadline of 200 ms for each example.
    settings.register_profile("gymq", deadline=None)
    settings.load_profile("gymq")


Connect = Callable[[str], Awaitable[Bus]]


async def _start(store: Path) -> EmbeddedServer:
    started = EmbeddedServer(store)
    await started.start()
    bus = await Bus.connect(started.url, role="test", name="make streams")
    await streams.ensure(bus.js, [])
    await bus.close()
    return started


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Search for garbage when all tests are collected, and not among them later: that takes a fifth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What was logged may hold half of a surrogate pair, which cannot be sent to the process that reports."""
    report = yield
    report.sections = [(name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections]
    return report


@pytest.fixture(scope="session")
def shared_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with all streams, for tests that leave it alive."""
    running = asyncio.run(_start(tmp_path_factory.mktemp("shared")))
    yield running.url
    asyncio.run(running.stop())


@pytest.fixture
async def own_server(tmp_path: Path) -> AsyncIterator[EmbeddedServer]:
    """A server with all streams that the test may kill; `start()` starts it again on the same port and store."""
    running = await _start(tmp_path / "own")
    yield running
    await running.stop()


@pytest.fixture(autouse=True)
def own_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test hides is hidden until its end."""
    monkeypatch.setattr(redaction, "_hidden", set(redaction._hidden))
    monkeypatch.setattr(redaction, "_credentials", set(redaction._credentials))


@pytest.fixture(autouse=True)
def own_logs() -> Iterator[None]:
    """What a command configures in this process holds until the end of the test."""
    loggers = [logging.getLogger(name) for name in (None, "nats", "httpx")]
    levels, handlers = [logger.level for logger in loggers], loggers[0].handlers[:]
    yield
    loggers[0].handlers[:] = handlers
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


@pytest.fixture
async def bus(shared_url: str) -> AsyncIterator[Bus]:
    connected = await Bus.connect(shared_url, role="test", name="test")
    async with queues_of_runs(connected):
        yield connected
    await connected.close()


@pytest.fixture
def js(bus: Bus) -> JetStream:
    return bus.js


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is tried again is tried as often as it would be, with shorter pauses in between."""
    pause_s, wait_s = Retry.pause_s, Tries.wait_s

    def shorter(retry: Retry, failed: int, **limits: float) -> float | None:
        pause = pause_s(retry, failed, **limits)
        return None if pause is None else pause / 100

    monkeypatch.setattr(Retry, "pause_s", shorter)
    monkeypatch.setattr(Tries, "wait_s", lambda *arguments: wait_s(*arguments) / 100)


@pytest.fixture
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that are being started again are not waited for."""
    monkeypatch.setattr(is_running, "__kwdefaults__", {"patience_s": 0.0})


@pytest.fixture
def sighup_by_default() -> Iterator[None]:
    """What a test starts is ended by SIGHUP, also under nohup, which has programs ignore it."""
    ours = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, ours)


@pytest.fixture
def run() -> str:
    """The name of a run, instance or stream that exists nowhere else."""
    return f"r{secrets.token_hex(6)}"


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Connects to a URL; closed when the test ends."""
    connected = []

    async def new(url: str) -> Bus:
        bus = await Bus.connect(url, role="test", name="test")
        connected.append(bus)
        return bus

    yield new
    for bus in connected:
        await bus.close()


@pytest.fixture
async def other_bus(shared_url: str, connect: Connect) -> Bus:
    """A second connection to the shared server."""
    return await connect(shared_url)


@pytest.fixture
async def own_bus(own_server: EmbeddedServer, connect: Connect) -> Bus:
    """A connection to the server that the test may kill."""
    return await connect(own_server.url)


@pytest.fixture
def kill_server(own_server: EmbeddedServer) -> Callable[[], Awaitable[None]]:
    async def kill() -> None:
        os.kill(own_server.pid, signal.SIGKILL)
        await own_server.wait()

    return kill


@pytest.fixture(scope="session")
def authors() -> Iterator[Any]:
    """The module `process_authors`, which processes find by its name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).parent / "support" / "authors")
        yield importlib.import_module("process_authors")


@pytest.fixture(scope="session")
def processes(authors: Any) -> Iterator[KillableProcesses]:
    """One pool for many tests: starting one takes longer than anything it does."""
    pool = KillableProcesses(2)
    yield pool
    pool.close()
