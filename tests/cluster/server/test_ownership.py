"""One owner per store, and how others find the server that runs there."""

import asyncio
import json
import os
import signal
import time
from pathlib import Path

import httpx
import nats
import pytest

from gymq.cluster.server import EmbeddedServer, embedded, find_running, is_gone, silent_owner
from gymq.cluster.server.address import hold_port
from gymq.errors import UsageError
from tests.support.waiting import DEADLINE_S, until_answer


async def test_a_second_owner_is_refused_and_told_who_has_the_store(store: Path, server: EmbeddedServer) -> None:
    with pytest.raises(UsageError) as refusal:
        await EmbeddedServer(store).start()
    assert str(store) in str(refusal.value)
    assert f"process {os.getpid()} " in str(refusal.value)
    assert f"process {server.pid})" in str(refusal.value)


async def test_a_refused_second_owner_does_not_disturb_the_first(store: Path, server: EmbeddedServer) -> None:
    with pytest.raises(UsageError):
        await EmbeddedServer(store).start()
    assert await find_running(store) == server.url


async def test_a_running_server_is_found_and_can_be_joined(store: Path, server: EmbeddedServer) -> None:
    url = await find_running(store)
    assert url == server.url
    async with await nats.connect(url) as client:
        await client.flush()


async def test_nothing_is_found_where_nothing_ever_ran(tmp_path: Path) -> None:
    assert await find_running(tmp_path / "missing") is None
    assert await find_running(tmp_path) is None


async def test_a_stopped_server_is_not_found(store: Path) -> None:
    async with EmbeddedServer(store):
        pass
    assert await find_running(store) is None


async def test_a_server_is_gone_when_it_was_stopped_or_another_took_its_place(store: Path) -> None:
    server = EmbeddedServer(store)
    await server.start()
    url = server.url
    os.kill(server.pid, signal.SIGKILL)
    await server.wait()
    assert not is_gone(store, url)  # its owner starts it again
    async with EmbeddedServer(store) as second:
        assert is_gone(store, url)
        url = second.url
        assert not is_gone(store, url)
    assert is_gone(store, url)


async def test_what_a_killed_server_left_is_neither_found_nor_in_the_way(store: Path) -> None:
    server = EmbeddedServer(store)
    await server.start()
    os.kill(server.pid, signal.SIGKILL)
    await server.wait()
    assert (store / "server.json").exists()
    assert await find_running(store) is None
    async with EmbeddedServer(store) as second:
        assert await find_running(store) == second.url


async def test_another_server_on_the_port_of_a_killed_one_is_not_taken_for_it(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = EmbeddedServer(store)
    await server.start()
    port = httpx.URL(server.url).port
    os.kill(server.pid, signal.SIGKILL)
    await server.wait()
    server._release_port()  # as when the process that started it is gone
    monkeypatch.setattr(embedded, "hold_port", lambda _: hold_port(port))
    async with EmbeddedServer(tmp_path / "other"):
        assert await find_running(store) is None


async def test_stopping_after_somebody_else_took_over_leaves_the_new_server_findable(store: Path) -> None:
    first = EmbeddedServer(store)
    await first.start()
    os.kill(first.pid, signal.SIGKILL)
    await first.wait()
    async with EmbeddedServer(store) as second:
        await first.stop()
        assert await find_running(store) == second.url


async def test_a_server_that_does_not_answer_still_has_its_store(store: Path) -> None:
    assert await silent_owner(store) is None
    async with EmbeddedServer(store) as server:
        os.kill(server.pid, signal.SIGSTOP)
        try:
            await until_answer(lambda: find_running(store), lambda url: url is None)
            assert await silent_owner(store) == str(os.getpid())
        finally:
            os.kill(server.pid, signal.SIGCONT)
    assert await silent_owner(store) is None
    async with EmbeddedServer(store, gives_way=True):
        assert await silent_owner(store) is None


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", "\x00\xff"])
async def test_a_damaged_record_counts_as_none(store: Path, server: EmbeddedServer, content: str) -> None:
    (store / "server.json").write_text(content)
    assert await find_running(store) is None
    await server.stop()
    async with EmbeddedServer(store) as second:
        assert await find_running(store) == second.url


async def test_a_server_that_another_version_started_is_found(store: Path, server: EmbeddedServer) -> None:
    record = json.loads((store / "server.json").read_text())
    del record["gives_way"]
    (store / "server.json").write_text(json.dumps({**record, "monitor_url": "http://127.0.0.1:8222"}))
    assert await find_running(store) == server.url


@pytest.mark.parametrize("host", ["0.0.0.0", "localhost"])  # which reach this one
async def test_a_record_of_a_server_on_another_machine_counts_as_none(
    store: Path, server: EmbeddedServer, host: str
) -> None:
    record = json.loads((store / "server.json").read_text())
    (store / "server.json").write_text(json.dumps({**record, "host": host}))
    assert await find_running(store) is None


async def test_the_record_tells_address_and_processes(store: Path, server: EmbeddedServer) -> None:
    record = json.loads((store / "server.json").read_text())
    assert record["pid"] == server.pid
    assert record["owner_pid"] == os.getpid()
    assert record["url"] == f"nats://127.0.0.1:{httpx.URL(server.url).port}"


async def test_a_server_that_gives_way_is_found_by_readers_only_and_ends_for_one_that_does_not(store: Path) -> None:
    reader = EmbeddedServer(store, gives_way=True)
    await reader.start()
    assert await find_running(store) is None
    assert await find_running(store, for_reading=True) == reader.url

    async def give_way() -> None:
        await reader.wanted()
        await reader.stop()

    giving_way = asyncio.create_task(give_way())
    async with EmbeddedServer(store) as writer:
        await giving_way
        assert await find_running(store) == await find_running(store, for_reading=True) == writer.url
    # The store is free again, so a reader may have it.
    async with EmbeddedServer(store, gives_way=True) as reader:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.wanted(), 0.3)


async def test_a_server_that_gives_way_does_not_ask_another_one_to(store: Path) -> None:
    async with EmbeddedServer(store, gives_way=True) as reader:
        with pytest.raises(UsageError, match="in use"):
            await EmbeddedServer(store, gives_way=True).start()
        assert await find_running(store, for_reading=True) == reader.url


async def test_a_request_for_the_store_from_the_future_counts_no_more(store: Path) -> None:
    """The clock was set back after it."""
    async with EmbeddedServer(store, gives_way=True) as reader:
        wanted = store / "server.wanted"
        wanted.touch()
        await asyncio.wait_for(reader.wanted(), DEADLINE_S)
        in_an_hour = time.time() + 3600
        os.utime(wanted, (in_an_hour, in_an_hour))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.wanted(), 0.3)
