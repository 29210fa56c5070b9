"""Where the engines of a worker come from: URLs, a name in the DNS, a file."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest
from gymq.workers.models.vllm_model.engine_sources import EngineSources, check_source


async def test_urls_are_what_they_are() -> None:
    sources = EngineSources(["http://a/v1", "http://b/v1/", "http://a/v1"])
    assert not sources.can_change
    assert await sources.read() == ["http://a/v1", "http://b/v1"]


async def test_a_file_has_one_url_a_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "engines.txt"
    sources = EngineSources([f"file:{file}", "http://c/v1"])
    assert sources.can_change
    assert await sources.read() == ["http://c/v1"]
    file.write_text("# the engines\nhttp://a/v1\n\n  http://b:8000/v1  \nhttp://c/v1\n")
    assert await sources.read() == ["http://a/v1", "http://b:8000/v1", "http://c/v1"]
    file.write_text("http://b:8000/v1\n")
    assert await sources.read() == ["http://b:8000/v1", "http://c/v1"]
    caplog.clear()
    for content in (b"http://a/v1\nb\n", b"http://a/v1\nb\n", b"\xff", b"\n" * 1_000_001):
        file.write_bytes(content)
        assert await sources.read() == ["http://b:8000/v1", "http://c/v1"]
    assert [message.partition("as they are: ")[2][:12] for message in caplog.messages] == [
        "line 2: expe",
        "'utf-8' code",
        "longer than ",
    ]
    file.write_text("")
    assert await sources.read() == ["http://c/v1"]


async def test_each_address_of_a_name_is_an_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[str] = ["10.0.0.2", "10.0.0.1", "fd00::1", "10.0.0.1"]

    async def getaddrinfo(host: str, port: int, **_: Any) -> list[Any]:
        assert (host, port) == ("engines.default.svc", 8000)
        if not found:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(0, 0, 0, "", (address, port)) for address in found]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo, raising=False)
    sources = EngineSources(["dns+http://engines.default.svc:8000/v1"])
    urls = ["http://10.0.0.1:8000/v1", "http://10.0.0.2:8000/v1", "http://[fd00::1]:8000/v1"]
    assert await sources.read() == urls
    found.clear()
    assert await sources.read() == urls
    found.append("10.0.0.9")
    assert await sources.read() == ["http://10.0.0.9:8000/v1"]


async def test_a_name_is_looked_up_for_real() -> None:
    assert "http://127.0.0.1:80/v1" in await EngineSources(["dns+http://localhost/v1"]).read()


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("file:", "expected a path after file:"),
        ("dns+engines:8000", "expected a URL"),
        ("dns+https://engines/v1", "http only"),
        ("engines:8000", "expected a URL"),
    ],
)
def test_what_cannot_be_a_source_is_refused(source: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        check_source(source)
