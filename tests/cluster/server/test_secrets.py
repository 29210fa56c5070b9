"""The password protects the server and shows up nowhere."""

import asyncio
import json
import stat
import sys
from pathlib import Path
from urllib.parse import quote, urlsplit

import nats
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.aio.client import Client

from gymq.cluster.server import EmbeddedServer, find_running
from gymq.errors import UsageError
from gymq.redaction import redact

from .monitoring import ask, password_of_monitor


def password_of(server: EmbeddedServer) -> str:
    password = urlsplit(server.url).password
    assert password is not None
    return password


def files_with(content: bytes, folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.is_file() and content in path.read_bytes()}


def open_to_others(folder: Path) -> list[Path]:
    return [path for path in (folder, *folder.iterdir()) if stat.S_IMODE(path.stat().st_mode) & 0o077]


async def try_to_connect(url: str) -> None:
    client = Client()
    try:
        await client.connect(url, allow_reconnect=False)
    finally:
        await client.close()


@pytest.mark.parametrize("credentials", ["", "gymq:guess@", "guess@"])
async def test_clients_without_the_password_are_refused(server: EmbeddedServer, credentials: str) -> None:
    url = f"nats://{credentials}127.0.0.1:{urlsplit(server.url).port}"
    with pytest.raises(nats.errors.Error, match=r"(?i)authorization"):
        await try_to_connect(url)


async def test_every_store_has_a_long_password_of_its_own_and_keeps_it(tmp_path: Path) -> None:
    async with EmbeddedServer(tmp_path / "a") as a, EmbeddedServer(tmp_path / "b") as b:
        first = password_of(a)
        assert first != password_of(b)
        assert len(first) >= 32
    async with EmbeddedServer(tmp_path / "a") as again:
        assert password_of(again) == first


async def test_files_with_the_password_are_for_their_owner_only(store: Path, server: EmbeddedServer) -> None:
    password = password_of(server).encode()
    assert files_with(password, store) == {"password", "nats-server.conf"}
    assert open_to_others(store) == []


async def test_the_password_is_hidden_where_the_server_is_shown(server: EmbeddedServer) -> None:
    password = password_of(server)
    assert password not in redact(server.url)
    assert password not in repr(server)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_process_list_has_no_password_and_no_key_of_the_user(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-planted")
    server = EmbeddedServer(store)
    asyncio.run(server.start())
    try:
        arguments = Path(f"/proc/{server.pid}/cmdline").read_text()
        environment = Path(f"/proc/{server.pid}/environ").read_text()
        assert "nats-server" in arguments
        assert password_of(server) not in arguments + environment
        assert "sk-planted" not in environment
    finally:
        asyncio.run(server.stop())


async def test_the_password_does_not_get_into_the_log_even_when_clients_fail(
    store: Path, server: EmbeddedServer
) -> None:
    password = password_of(server)
    with pytest.raises(nats.errors.Error):
        await try_to_connect(f"nats://{password}@127.0.0.1:{urlsplit(server.url).port}")
    log = (store / "nats-server.log").read_text()
    assert "authentication error" in log
    assert password not in log


async def test_monitoring_does_not_tell_the_password(store: Path, server: EmbeddedServer) -> None:
    secrets = (password_of(server), password_of_monitor(store))
    for what in ("VARZ", "CONNZ", "ACCOUNTZ", "JSZ"):
        answer = json.dumps(await ask(server, store, what))
        assert not any(secret in answer for secret in secrets)


async def test_clients_cannot_ask_the_server_about_itself(server: EmbeddedServer) -> None:
    async with await nats.connect(server.url) as client:
        for what in ("PING.VARZ", "PING.JSZ", "PING.HEALTHZ"):
            with pytest.raises(nats.errors.NoRespondersError):
                await client.request(f"$SYS.REQ.SERVER.{what}")


async def test_each_start_has_another_password_for_the_monitor(store: Path) -> None:
    async with EmbeddedServer(store) as server:
        first = password_of_monitor(store)
        assert first not in server.url
        assert len(first) >= 32
    async with EmbeddedServer(store):
        assert password_of_monitor(store) != first


async def test_a_damaged_password_file_is_refused_with_the_way_out(store: Path) -> None:
    async with EmbeddedServer(store):
        (store / "password").write_text('x" }')
        with pytest.raises(UsageError, match="delete it"):
            await find_running(store)


@given(st.text(min_size=1), st.text(min_size=1))
def test_redact_hides_any_password(user: str, password: str) -> None:
    secret = quote(password, safe="")
    url = f"nats://{quote(user, safe='')}:{secret}@host:4222"
    assert redact(url) == "nats://***@host:4222"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("nats://host:4222", "nats://host:4222"),
        ("nats://t0ken@host", "nats://***@host"),
        ("u:p@host:4222", "***@host:4222"),
        ("nats://u:p/with/@/slash@host", "nats://***@host"),
        ("nats://a:b@h1:1,tls://c:d@h2:2,nats://h3", "nats://***@h1:1,tls://***@h2:2,nats://h3"),
        ("cannot reach nats://u:p@host now", "cannot reach nats://***@host now"),
        ("", ""),
    ],
)
def test_redact_keeps_what_is_no_secret(url: str, shown: str) -> None:
    assert redact(url) == shown


async def test_the_record_has_no_secret(store: Path, server: EmbeddedServer) -> None:
    record = json.loads((store / "server.json").read_text())
    assert redact(record["url"]) == record["url"]
