"""Pages of the public web. The model says which: private addresses are out of reach, size and time are limited."""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import urljoin

import aiohttp
import yarl

from gymq.errors import GymqError

MAX_BYTES = 5_000_000
MAX_URL_CHARS = 4000  # reading one may take quadratic time
MAX_REDIRECTS = 5
REDIRECTS = frozenset({301, 302, 303, 307, 308})

_TRANSLATED = ipaddress.IPv6Network("64:ff9b::/96")  # NAT64, RFC 6052
_LOCAL_TRANSLATION = ipaddress.IPv6Network("64:ff9b:1::/48")  # NAT64 with any prefix length, RFC 8215
_COMPATIBLE = ipaddress.IPv6Network("::/96")  # RFC 4291, deprecated


class PageError(GymqError):
    """A page that cannot be read; the text is for the model."""


class PublicResolver(aiohttp.ThreadedResolver):
    """Finds only public addresses of a host; asked again for each connection, so a name cannot change in between."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[aiohttp.abc.ResolveResult]:
        found = await super().resolve(host, port, family)
        public = [address for address in found if is_public(address["host"])]
        if not public:
            raise PageError("private addresses cannot be read")
        return public


class Pages:
    """Fetches pages. Use `start` and `stop` around it.

    Args:
        timeout_s: seconds for one page, redirects included.
        allow_private: reach private and loopback addresses too.
    """

    def __init__(self, timeout_s: float, allow_private: bool) -> None:
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._allow_private = allow_private
        self._session: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        resolver = None if self._allow_private else PublicResolver()
        # Cookies of one rollout are none of another's business.
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(resolver=resolver),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=self._timeout,
        )

    async def stop(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def read(self, url: str) -> bytes:
        """Return the body of a page; empty if the site has none to give.

        Raises:
            PageError
        """
        try:
            for _ in range(MAX_REDIRECTS + 1):
                status, location, body = await self.fetch(self.checked(url))
                if status not in REDIRECTS:
                    return body if status == 200 else b""
                url = urljoin(url, location)
        except TimeoutError:
            raise PageError("the page did not come in time") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise PageError(f"the page could not be read: {error or type(error).__name__}") from None
        raise PageError(f"more than {MAX_REDIRECTS} redirects")

    def checked(self, url: str) -> str:
        """Return the address, if it may be read.

        Raises:
            PageError
        """
        if len(url) > MAX_URL_CHARS:
            raise PageError(f"an address has at most {MAX_URL_CHARS} characters")
        try:
            parsed = yarl.URL(url)
        except ValueError as error:
            raise PageError(f"this is not an address: {error}") from None
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise PageError("only http:// and https:// addresses can be read")
        if not self._allow_private and not _may_be_public(parsed.host):
            raise PageError("private addresses cannot be read")
        return url

    async def fetch(self, url: str) -> tuple[int, str, bytes]:
        """Status, `Location` and body of one answer.

        Raises:
            PageError: it is too large.
            aiohttp.ClientError, OSError, TimeoutError
        """
        assert self._session is not None, "start() comes first"
        async with self._session.get(url, allow_redirects=False) as response:
            body = bytearray()
            async for chunk in response.content.iter_any():
                body += chunk
                if len(body) > MAX_BYTES:
                    raise PageError(f"the page has more than {MAX_BYTES} bytes")
            return response.status, response.headers.get("Location", ""), bytes(body)


def is_public(address: str) -> bool:
    """Return whether an IP address, and the IPv4 address that it may carry, belong to the public internet.

    Raises:
        ValueError: it is not an address.
    """
    parsed = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(parsed, ipaddress.IPv6Address):
        parsed = _ipv4_inside(parsed) or parsed
    return parsed.is_global and not parsed.is_multicast and parsed not in _LOCAL_TRANSLATION


def _ipv4_inside(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """Return the IPv4 address to which packets for an IPv6 address are handed on."""
    if address in _TRANSLATED or address in _COMPATIBLE:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour


def _may_be_public(host: str) -> bool:
    """A host that is an address is never looked up, so it is judged here, however it is written."""
    try:
        return is_public(host)
    except ValueError:
        pass
    try:
        return is_public(socket.inet_ntoa(socket.inet_aton(host)))  # such as `127.1` and `2130706433`
    except OSError:
        return host.rstrip(".") != "localhost" and not host.rstrip(".").endswith(".localhost")
