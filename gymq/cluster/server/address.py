"""Addresses of the embedded server: ports to listen on, and URLs with the password for clients."""

import secrets
import socket

from gymq.errors import PortTaken, UsageError

USER = "gymq"
HOST = "127.0.0.1"  # This machine only: without TLS, the password would cross the network readable.

# Below the range from which systems take the local ports of outgoing connections (32768 up on Linux, 49152 on macOS).
# While a server is down for a restart no connection can get its port by chance, its own clients' attempts included.
_FIRST_PORT, _LAST_PORT = 20_000, 29_999


def hold_port(port: int | None = None) -> socket.socket:
    """Reserve a port for a server of this machine, which can still listen on it; no other caller gets the same port.

    Args:
        port: the port; if None, a random one that is not in use.

    Returns:
        A socket that holds the port until it is closed.

    Raises:
        PortTaken: another program listens on `port`.
        UsageError: no port is free.
    """
    held = socket.socket()
    if port is not None:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            held.bind((HOST, port))
        except OSError:
            held.close()
            raise PortTaken(f"Port {port} of this machine is taken by another program: stop that program.") from None
        return held
    for _ in range(100):
        try:
            held.bind((HOST, _FIRST_PORT + secrets.randbelow(_LAST_PORT - _FIRST_PORT + 1)))
        except OSError:
            continue
        # Only after the port was found free of sockets that others hold in the same way.
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return held
    held.close()
    raise UsageError(f"No free port was found on {HOST} between {_FIRST_PORT} and {_LAST_PORT}.")


def client_url(port: int, password: str) -> str:
    """Return the URL that a client connects to. It is a secret."""
    return f"nats://{USER}:{password}@{HOST}:{port}"
