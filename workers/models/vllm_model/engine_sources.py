"""The engines of a worker, where `base_url` has them from: URLs, a name in the DNS, or a file."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from gymq.workers.models.openai_model.connection import check_url

log = logging.getLogger("gymq.vllm_model")

_FILE = "file:"
_DNS = "dns+"
_MAX_FILE_BYTES = 1_000_000


def check_source(source: str) -> str:
    """Return a source without a slash at its end; ValueError if it cannot be one."""
    if source.startswith(_FILE):
        if not source.removeprefix(_FILE):
            raise ValueError("expected a path after file:, of a file with one URL a line")
        return source
    if source.startswith(_DNS):
        url = check_url(source.removeprefix(_DNS))
        if urlsplit(url).scheme != "http":
            raise ValueError("dns+ is for http only, since certificates are for names and engines are asked by address")
        return _DNS + url
    return check_url(source)


class EngineSources:
    """Reads the sources again and again; what cannot be read at a time is as it was before."""

    def __init__(self, sources: Sequence[str]) -> None:
        self._sources = [check_source(source) for source in sources]
        self._known: dict[str, list[str]] = {}
        self._reported: dict[str, str] = {}  # what is wrong with a source, so that it is logged once

    def __str__(self) -> str:
        return ", ".join(self._sources)

    @property
    def can_change(self) -> bool:
        """Return whether reading again may give something else."""
        return any(source.startswith((_FILE, _DNS)) for source in self._sources)

    async def read(self) -> list[str]:
        """Return the URLs of the engines, each once."""
        for source in self._sources:
            try:
                self._known[source] = await self._urls(source)
            except (OSError, ValueError) as error:
                self._known.setdefault(source, [])
                self._report(source, str(error))
            else:
                self._reported.pop(source, None)
        return list(dict.fromkeys(url for source in self._sources for url in self._known[source]))

    async def _urls(self, source: str) -> list[str]:
        if source.startswith(_FILE):
            return await asyncio.to_thread(_read_file, Path(source.removeprefix(_FILE)))
        if source.startswith(_DNS):
            return await _resolve(source.removeprefix(_DNS))
        return [source]

    def _report(self, source: str, reason: str) -> None:
        if self._reported.get(source) != reason:
            self._reported[source] = reason
            log.warning("%s: cannot be read, so its engines stay as they are: %s", source, reason)


def _read_file(path: Path) -> list[str]:
    """Return the URLs in a file, one a line; empty lines and those that begin with # are skipped."""
    with path.open("rb") as file:
        content = file.read(_MAX_FILE_BYTES + 1)
    if len(content) > _MAX_FILE_BYTES:
        raise ValueError(f"longer than {_MAX_FILE_BYTES} bytes")
    urls = []
    for number, line in enumerate(content.decode().splitlines(), 1):
        text = line.strip()
        if text and not text.startswith("#"):
            try:
                urls.append(check_url(text))
            except ValueError as error:
                raise ValueError(f"line {number}: {error}") from None
    return urls


async def _resolve(url: str) -> list[str]:
    """Return a URL once for each address of its host."""
    parts = urlsplit(url)
    found = await asyncio.get_running_loop().getaddrinfo(
        parts.hostname, parts.port or 80, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP
    )
    addresses = sorted({str(address[0]) for *_, address in found})
    hosts = (f"[{address}]" if ":" in address else address for address in addresses)
    return [parts._replace(netloc=f"{host}:{parts.port or 80}").geturl() for host in hosts]
