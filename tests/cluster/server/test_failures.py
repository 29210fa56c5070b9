"""A server that cannot start says why, in a sentence for the person who can do something about it."""

import asyncio
import logging
import os
import secrets
import shutil
import signal
import socket
from collections import namedtuple
from itertools import chain, repeat
from pathlib import Path

import nats
import pytest

from gymq.cluster.server import EmbeddedServer, embedded, find_running
from gymq.cluster.server.address import hold_port
from gymq.cluster.server.config import LOG_MAX_BYTES
from gymq.errors import UsageError


async def fill(server: EmbeddedServer) -> None:
    async with await nats.connect(server.url) as client:
        await client.jetstream().add_stream(name="KEPT", subjects=["kept"])
        for _ in range(10):
            await client.jetstream().publish("kept", b"x" * 1000)


def damage(store: Path, pattern: str, content: bytes | None) -> None:
    """Replace the one file that matches, or remove it."""
    (file,) = store.glob(pattern)
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)


async def stopped(store: Path) -> tuple[EmbeddedServer, int]:
    """A server that was stopped, and the port that it will want again."""
    server = EmbeddedServer(store)
    await server.start()
    port = int(server.url.rpartition(":")[2])
    await server.stop()
    return server, port


async def test_a_port_taken_by_another_program_is_named(store: Path) -> None:
    server, port = await stopped(store)
    with (
        socket.create_server(("127.0.0.1", port)),
        pytest.raises(UsageError, match=f"Port {port} of this machine is taken"),
    ):
        await server.start()


async def test_a_server_that_met_a_full_disk_is_ended_when_there_is_room(
    server: EmbeddedServer, store: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(embedded, "_LOOK_EVERY_S", 0.02)
    looks = chain([True, False, False], repeat(True))
    monkeypatch.setattr(server._store, "has_room", looks.__next__)
    ended = asyncio.create_task(server.wait())
    with (store / "nats-server.log").open("a") as log:
        while not ended.done():
            print("[ERR] JetStream failed to store a msg: write 16.blk: no space left on device", file=log, flush=True)
            await asyncio.sleep(0.005)
    assert await ended in (0, 1)
    assert "met a full disk" in caplog.text


@pytest.mark.parametrize("name", ["server.lock", "nats-server.log"])
async def test_a_link_in_a_store_of_a_stranger_leads_to_no_other_file(tmp_path: Path, name: str) -> None:
    other = tmp_path / "other"
    other.write_text("kept")
    store = tmp_path / "store"
    store.mkdir()
    (store / name).symlink_to(other)
    with pytest.raises(UsageError, match=r"store folder .* cannot be used"):
        await EmbeddedServer(store).start()
    assert other.read_text() == "kept"


async def test_the_reason_is_found_behind_a_full_log(store: Path) -> None:
    async with EmbeddedServer(store) as server:
        await fill(server)
    damage(store, "jetstream/*/streams/KEPT/meta.inf", b"damaged")
    (store / "nats-server.log").write_bytes(b"old\n" * (LOG_MAX_BYTES // 4))
    with pytest.raises(UsageError, match="is damaged"):
        await EmbeddedServer(store).start()


async def test_a_port_taken_by_another_nats_server_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, port = await stopped(tmp_path / "first")
    monkeypatch.setattr(embedded, "hold_port", lambda _: hold_port(port))
    async with EmbeddedServer(tmp_path / "other"):
        with pytest.raises(UsageError, match=f"Port {port} of this machine is taken"):
            await first.start()


async def test_nobody_else_picks_the_port_of_a_server_that_is_down_for_a_restart(
    server: EmbeddedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, port = server.url, int(server.url.rpartition(":")[2])
    os.kill(server.pid, signal.SIGKILL)
    await server.wait()
    picks = chain([port - 20_000], repeat(0))
    monkeypatch.setattr(secrets, "randbelow", lambda below: next(picks) or secrets.choice(range(below)))
    async with EmbeddedServer(tmp_path / "other") as other:
        assert not other.url.endswith(f":{port}")
        await server.start()
    assert server.url == url


async def test_a_folder_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="file/store cannot be used"):
        await EmbeddedServer(tmp_path / "file" / "store").start()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_write_permission_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(UsageError, match="Permission denied"):
        asyncio.run(EmbeddedServer(tmp_path).start())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
async def test_the_store_of_another_user_cannot_be_joined(store: Path, server: EmbeddedServer) -> None:
    (store / "server.json").chmod(0)
    with pytest.raises(UsageError, match="Permission denied"):
        await find_running(store)
    (store / "server.json").chmod(0o600)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
async def test_a_server_ends_even_if_its_files_cannot_be_reached(store: Path) -> None:
    server = EmbeddedServer(store)
    await server.start()
    exit_status = asyncio.create_task(server.wait())
    await asyncio.sleep(0)
    (store / "server.json").chmod(0)
    with pytest.raises(UsageError, match="Permission denied"):
        await server.stop()
    await exit_status


async def test_a_full_disk_is_refused_before_streams_can_freeze(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(1 << 40, (1 << 40) - 1000, 1000))
    with pytest.raises(UsageError, match="is full"):
        await EmbeddedServer(store).start()


async def test_a_file_where_the_data_should_be_is_reported_with_the_words_of_the_server(tmp_path: Path) -> None:
    (tmp_path / "jetstream").touch()
    with pytest.raises(UsageError, match=r"(?s)JetStream cannot use .*not a directory"):
        await EmbeddedServer(tmp_path).start()


@pytest.mark.parametrize("victim", ["meta.inf", "meta.sum"])
async def test_a_stream_that_is_lost_stops_the_start_instead_of_going_unnoticed(store: Path, victim: str) -> None:
    async with EmbeddedServer(store) as server:
        await fill(server)
    damage(store, f"jetstream/*/streams/KEPT/{victim}", b"damaged")
    with pytest.raises(UsageError, match=r"(?s)is damaged .*KEPT.*could not be recovered"):
        await EmbeddedServer(store).start()


async def test_lost_messages_of_a_stream_are_warned_of(store: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with EmbeddedServer(store) as server:
        await fill(server)
    damage(store, "jetstream/*/streams/KEPT/msgs/1.blk", None)
    with caplog.at_level(logging.WARNING, "gymq.server"):
        async with EmbeddedServer(store):
            pass
    assert "messages may be missing" in caplog.text


async def test_a_kill_alone_is_not_warned_of(store: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with EmbeddedServer(store) as server:
        await fill(server)
        os.kill(server.pid, 9)
        await server.wait()
        await server.start()
    assert caplog.records == []


async def test_the_last_words_of_a_server_are_shown_without_the_password(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    talkative = tmp_path / "nats-server"
    talkative.write_text(
        "#!/bin/sh\n"
        '[ "$1" = --version ] && echo "nats-server: v2.15.1" && exit\n'
        'echo "the password is: $(cat password)"\n'
        "exit 3\n"
    )
    talkative.chmod(0o755)
    monkeypatch.setattr(embedded, "find_binary", lambda: talkative)
    with pytest.raises(UsageError) as failure:
        await EmbeddedServer(store).start()
    assert "(status 3)" in str(failure.value)
    assert str(store / "nats-server.log") in str(failure.value)
    assert str(failure.value).endswith("the password is: ***")
