"""The settings that the rest of gymq counts on, as the running server reports them."""

from pathlib import Path
from shutil import disk_usage
from typing import Any
from urllib.parse import urlsplit

import psutil

from gymq.cluster.server import EmbeddedServer
from gymq.cluster.server.config import render_config

from .monitoring import ask


async def settings(server: EmbeddedServer, store: Path) -> Any:
    return (await ask(server, store, "VARZ"))["data"]


async def test_the_server_runs_with_our_limits(server: EmbeddedServer, store: Path) -> None:
    found = await settings(server, store)
    assert found["max_payload"] == 8 << 20
    assert found["max_pending"] == 128 << 20
    assert found["max_control_line"] == 4096
    assert found["ping_interval"] == 20 * 10**9
    assert found["ping_max"] == 2
    assert found["write_deadline"] == 10 * 10**9
    assert found["auth_required"] is True


async def test_the_server_listens_on_one_port_on_loopback_only(server: EmbeddedServer, store: Path) -> None:
    found = await settings(server, store)
    assert found["host"] == "127.0.0.1"
    assert found["http_port"] == 0
    assert found["https_port"] == 0
    addresses = {
        tuple(connection.laddr)
        for connection in psutil.net_connections("tcp")
        if connection.pid == server.pid and connection.status == psutil.CONN_LISTEN
    }
    assert addresses == {("127.0.0.1", urlsplit(server.url).port)}


async def test_jetstream_may_use_less_than_the_free_disk(server: EmbeddedServer, store: Path) -> None:
    most = (await settings(server, store))["jetstream"]["config"]["max_storage"]
    assert 0 < most < disk_usage(store).free


def test_servers_before_2_14_get_no_word_they_would_refuse() -> None:
    def config(version: tuple[int, int, int]) -> str:
        return render_config(
            server_name="name",
            version=version,
            port=4222,
            password="secret",
            monitor_password="another",
            max_file_bytes=1 << 30,
        )

    assert "feature_flags" not in config((2, 12, 8))
    assert "feature_flags" in config((2, 14, 0))
