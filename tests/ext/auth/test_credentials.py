"""As which user a process connects."""

from pathlib import Path

import pytest

from gymq.bus import Bus, BusError
from gymq.bus.credentials import VARIABLE, login, may_take, url_of_role
from gymq.ext.auth.actions import make_password

from .conftest import RoleServer

PASSWORD = "p" * 43


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "agent.password").write_text(PASSWORD + "\n")
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    return tmp_path


def test_without_a_folder_a_url_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert url_of_role("nats://host:4222", "agent") == "nats://host:4222"
    assert may_take("nats://host:4222", "operator")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("nats://host:4222", f"nats://agent:{PASSWORD}@host:4222"),
        ("host", f"nats://agent:{PASSWORD}@host"),
        ("tls://a:1,tls://[::1]:2", f"tls://agent:{PASSWORD}@a:1,tls://agent:{PASSWORD}@[::1]:2"),
        ("nats://me:mine@host", "nats://me:mine@host"),
        ("nats://token@host", "nats://token@host"),
    ],
)
def test_a_url_without_a_user_gets_that_of_the_role(folder: Path, url: str, expected: str) -> None:
    assert url_of_role(url, "agent") == expected


def test_a_role_whose_password_is_not_here_cannot_be_taken(folder: Path) -> None:
    assert may_take("nats://host", "agent")
    assert not may_take("nats://host", "operator")
    assert may_take("nats://me:mine@host", "operator")
    with pytest.raises(BusError, match="'operator'"):
        url_of_role("nats://host", "operator")


@pytest.mark.parametrize("content", ["", "short", 'x" } }' * 20, "\x00" * 50, "é" * 50])
def test_a_file_without_a_password_is_named_and_not_quoted(folder: Path, content: str) -> None:
    (folder / "agent.password").write_text(content)
    with pytest.raises(BusError, match=r"agent\.password") as refused:
        url_of_role("nats://host", "agent")
    assert not content or content not in str(refused.value)


def test_a_password_is_made_once(tmp_path: Path) -> None:
    made = make_password(tmp_path, "agent")
    assert make_password(tmp_path, "agent") == made != make_password(tmp_path, "model")


@pytest.mark.parametrize(
    ("url", "servers", "login_of"),
    [
        ("nats://host:4222", ["nats://host:4222"], {}),
        ("me:pw@host", ["host"], {"user": "me", "password": "pw"}),
        ("nats://me:p%40%3Aw@host", ["nats://host"], {"user": "me", "password": "p@:w"}),
        ("nats://me:a:b@host", ["nats://host"], {"user": "me", "password": "a:b"}),
        ("nats://token@host", ["nats://host"], {"token": "token"}),
        ("nats://me:pw@a:1,nats://b:2", ["nats://a:1", "nats://b:2"], {"user": "me", "password": "pw"}),
    ],
)
def test_a_user_is_for_all_servers(url: str, servers: list[str], login_of: dict[str, str]) -> None:
    assert login(url) == (servers, login_of)


async def test_a_connection_takes_the_password_of_its_role(
    role_server: RoleServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(role_server.folder))
    for role in role_server.passwords():
        bus = await Bus.connect(role_server.url, role=role, name="test")
        assert bus.is_connected
        await bus.close()


async def test_a_missing_password_is_a_sentence(role_server: RoleServer, folder: Path) -> None:
    with pytest.raises(BusError, match="no password of the role 'client'"):
        await Bus.connect(role_server.url, role="client", name="test")
