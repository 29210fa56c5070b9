"""Ports for what a test starts; no two calls of a test run give the same one."""

import os
import secrets
import socket
from collections.abc import Iterator

_FIRST, _NUM = 10_000, 10_000  # below those that servers of gymq choose, and those of outgoing connections
_MOST_WORKERS = 4  # of pytest-xdist; each has ports of its own


def _ports() -> Iterator[int]:
    share = _NUM // _MOST_WORKERS
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _MOST_WORKERS
    begin = secrets.randbelow(share)  # another run of the tests on this machine most likely begins elsewhere
    while True:
        for number in range(share):
            yield _FIRST + worker * share + (begin + number) % share


_next = _ports()


def free_port(host: str) -> int:
    """Return a port on which nothing listens, and which was not returned before."""
    for port in _next:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind((host, port))
            except OSError:
                continue
            return port
    raise AssertionError("unreachable")
