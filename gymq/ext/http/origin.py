"""Protection against requests that pages of other origins make in a browser.

A browser sends any request that a page asks for, also to addresses that only this machine or this network can reach. It
reports that in `Origin` and `Sec-Fetch-Site`, which pages cannot forge. A page whose own name was made to resolve to
the bridge (DNS rebinding) counts as the same origin for the browser; its name is in `Host`.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from urllib.parse import urlsplit

from aiohttp import web

from gymq.data.failure_status import StatusError
from gymq.ext.shared.addresses import is_loopback

_ANYWHERE = frozenset({"", "0.0.0.0", "::"})
_DEFAULT_PORTS = {"http": 80, "https": 443}
_PAGE = frozenset({"/", "/ui", "/ui/"})  # holds no data, so links from elsewhere may lead there


class OriginCheck:
    """Recognizes requests of other origins by their headers."""

    def __init__(self, hosts: Iterable[str], listen_at: str, *, with_key: bool) -> None:
        """Set the origins and hosts that are allowed.

        Args:
            hosts: names and addresses by which clients reach the bridge, besides those that mean this machine.
            listen_at: address to listen on. If other machines can reach it, every address is accepted in `Host`: only a
                name can be made to resolve elsewhere.
            with_key: whether requests need a key. A page that was rebound does not have it, so `Host` may be anything.
        """
        self._hosts = {_plain(host) for host in hosts} - _ANYWHERE
        self._with_key = with_key
        self._any_address = not is_loopback(listen_at)
        if self._any_address:
            self._hosts.add(_plain(socket.gethostname()))

    def check(self, request: web.Request) -> None:
        """Let a request pass that no foreign page can have made.

        Raises:
            StatusError: 403.
        """
        hosts = request.headers.getall("Host", [])
        if not self._with_key and not (len(hosts) == 1 and self._is_ours(hosts[0])):
            raise _refused(
                f"Host: {', '.join(hosts) or 'missing'!s:.80} is not a name of this bridge; "
                "add it to the setting `allowed_hosts`, or set `api_key`"
            )
        origin = request.headers.get("Origin")
        if origin is not None and not (len(hosts) == 1 and _is_same(origin, hosts[0])):
            raise _refused(f"Origin: {origin:.80} is not this bridge; pages of other origins may not use it")
        site = request.headers.get("Sec-Fetch-Site")
        if site not in (None, "none", "same-origin") and not _is_link_to_page(request):
            raise _refused(f"Sec-Fetch-Site: {site:.80}: pages of other origins may not use this bridge")

    def _is_ours(self, host_and_port: str) -> bool:
        host = _host_of(host_and_port)
        return is_loopback(host) or host in self._hosts or (self._any_address and _is_address(host))


def _refused(message: str) -> StatusError:
    return StatusError(403, "foreign_origin", message)


def _is_link_to_page(request: web.Request) -> bool:
    return request.method == "GET" and request.path in _PAGE and request.headers.get("Sec-Fetch-Mode") == "navigate"


def _is_same(origin: str, host_and_port: str) -> bool:
    """Return whether an origin is that of the address a request was sent to; a proxy may have added TLS."""
    try:
        scheme, netloc = urlsplit(origin)[:2]
        default = _DEFAULT_PORTS.get(scheme)
        of_origin, of_request = urlsplit(f"//{netloc}"), urlsplit(f"//{host_and_port}")
        ports = (of_origin.port or default, of_request.port or default)
    except ValueError:
        return False
    return default is not None and of_origin.hostname == of_request.hostname and ports[0] == ports[1]


def _host_of(host_and_port: str) -> str:
    """Return the name or address in a `Host` header; empty if there is none."""
    try:
        found = urlsplit(f"//{host_and_port}")
        _ = found.port  # raises where it is not a number
    except ValueError:
        return ""
    is_whole = not (found.username or found.path or found.query or found.fragment)
    return _plain(found.hostname or "") if is_whole else ""


def _plain(host: str) -> str:
    return host.lower().strip("[]").removesuffix(".")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
