"""Ports for what a test starts: none is given again before hundreds of others were."""

import os
import secrets
import socket
from collections.abc import Iterator

_FIRST, _NUM = 30_000, 2_768  # between those that gymq chooses and those of outgoing connections
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
    """Return a port on which nothing listens, and which was not returned lately."""
    for port in _next:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind((host, port))
            except OSError:
                continue
            return port
    raise AssertionError("unreachable")
