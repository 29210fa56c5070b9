"""The HTTP side of http_resources: one server in the manner of NeMo Gym, and sessions that are cookies.

A session's calls are sent once. Only a connection that was never made is tried again, since nothing was sent on it.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass

import aiohttp

import gymq
from gymq.failures import Retry

CONNECT = Retry(tries=3, first_pause_s=0.2, longest_pause_s=2.0)
CONNECT_TIMEOUT_S = 10.0


class NotAnswered(gymq.GymqError):
    """No answer arrived.

    Attributes:
        sent: whether the server may have got the request.
    """

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.message = message
        self.sent = sent


class TooLarge(gymq.GymqError):
    """The server answered, with more than may be read."""


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")

    @property
    def shown(self) -> str:
        """The status and the beginning of the body, for messages."""
        beginning = " ".join(self.text[:300].split())
        return f"status {self.status}: {beginning}" if beginning else f"status {self.status}"


class HttpServer:
    """The server, and the connections to it."""

    def __init__(self, base_url: str, timeout_s: float, max_answer_bytes: int) -> None:
        self.base_url = base_url.rstrip("/")
        self._timeout_s = timeout_s
        self._max_answer_bytes = max_answer_bytes
        self._connector: aiohttp.TCPConnector | None = None

    async def start(self) -> None:
        # One connection a request: on one that was kept, the server may hang up just when a tool call is under way, and
        # then it is unknown whether the tool ran.
        self._connector = aiohttp.TCPConnector(limit=0, force_close=True)

    async def stop(self) -> None:
        if self._connector is not None:
            await self._connector.close()

    def session(self) -> HttpSession:
        """Return a session without cookies yet."""
        assert self._connector is not None
        jar = aiohttp.CookieJar(unsafe=True)  # servers are often named by their IP address
        timeout = aiohttp.ClientTimeout(total=self._timeout_s, sock_connect=CONNECT_TIMEOUT_S)
        client = aiohttp.ClientSession(
            connector=self._connector, connector_owner=False, cookie_jar=jar, timeout=timeout
        )
        return HttpSession(self.base_url, client, self._max_answer_bytes)


class HttpSession:
    """The calls of one session. Each answer may replace its cookies."""

    def __init__(self, base_url: str, client: aiohttp.ClientSession, max_answer_bytes: int) -> None:
        self._base_url = base_url
        self._client = client
        self._max_answer_bytes = max_answer_bytes

    async def close(self) -> None:
        await self._client.close()

    async def __aenter__(self) -> HttpSession:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def post(self, path: str, body: bytes) -> Answer:
        """Post JSON, and read the whole answer, with any status.

        Raises:
            NotAnswered, TooLarge
        """
        failed = 0
        while True:
            try:
                return await self._post(path, body)
            except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
                failed += 1
                pause_s = CONNECT.pause_s(failed, left_s=float("inf"))
                if pause_s is None:
                    text = f"{self._base_url} cannot be reached: {_told(error)}"
                    raise NotAnswered(text, sent=False) from None
                await asyncio.sleep(pause_s)
            except aiohttp.InvalidURL:
                raise NotAnswered(f"{self._base_url}{path} is not a URL", sent=False) from None
            except TimeoutError:
                raise NotAnswered(f"{self._base_url}{path} did not answer in time", sent=True) from None
            except (aiohttp.ClientError, OSError) as error:
                text = f"{self._base_url}{path} broke its answer off: {_told(error)}"
                raise NotAnswered(text, sent=True) from None

    async def _post(self, path: str, body: bytes) -> Answer:
        headers = {"Content-Type": "application/json"}
        async with self._client.post(
            self._base_url + path, data=body, headers=headers, allow_redirects=False
        ) as response:
            content = bytearray()
            async for part in response.content.iter_any():
                content += part
                if len(content) > self._max_answer_bytes:
                    raise TooLarge(f"{path} answered with more than {self._max_answer_bytes} bytes")
            return Answer(response.status, bytes(content))


def failure_of(error: NotAnswered, unknown: gymq.FailureClass) -> gymq.RolloutError:
    """Return the failure for a request without an answer.

    Args:
        unknown: its class if the server may have got the request.
    """
    if error.sent:
        return gymq.RolloutError(unknown, error.message)
    return gymq.ComponentFailed(error.message)


def _told(error: BaseException) -> str:
    with contextlib.suppress(AttributeError):
        return error.os_error.strerror or str(error)  # type: ignore[attr-defined]
    return str(error) or type(error).__name__
