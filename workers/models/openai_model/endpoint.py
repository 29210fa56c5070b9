"""One HTTP endpoint that takes and gives JSON: connections, retries, limits and readable errors.

It knows nothing of what is asked. Secrets (keys, header values) are cut out of every text that leaves it.
"""

from __future__ import annotations

import asyncio
from asyncio import sleep
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import msgspec

import gymq
from workers.models.openai_model.limit import AdaptiveLimit
from workers.models.openai_model.retry import (
    ASKED_TOO_OFTEN,
    BROKEN,
    CONNECT_TIMEOUT_S,
    UNREACHABLE,
    Tries,
    Trouble,
    policy_of,
    retry_after_s,
)

MAX_REPLY_BYTES = 64 * 1024 * 1024

MAX_EXCERPT = 500  # characters of an endpoint's message that are passed on
_SHORTEST_SECRET = 4  # shorter ones protect nothing, and cutting them out would garble every text
_QUOTA_USED_UP = "insufficient_quota"

_decode = msgspec.json.Decoder().decode


class Refused(Exception):
    """The endpoint answered that it will not do what it was asked.

    Attributes:
        reason: the endpoint's own words, cut to a sensible length.
        code: the endpoint's error code or type, empty if it gave none.
        retryable: whether it may change its mind.
    """

    def __init__(self, message: str, *, reason: str, code: str, retryable: bool) -> None:
        super().__init__(message)
        self.reason = reason
        self.code = code
        self.retryable = retryable


@dataclass(frozen=True)
class Head:
    """The beginning of an answer."""

    status: int
    reason: str
    headers: Mapping[str, str]  # names in any case

    @property
    def content_type(self) -> str:
        """The media type, without parameters."""
        return self.headers.get("Content-Type", "application/octet-stream").partition(";")[0].strip().lower()


class Endpoint:
    """Posts JSON to the paths below one base URL."""

    def __init__(
        self,
        base_url: str,
        *,
        headers: Mapping[str, str],
        secrets: Iterable[str],
        max_concurrent_requests: int | None,
    ) -> None:
        """
        Args:
            secrets: texts that must not be seen in errors.
            max_concurrent_requests: requests on their way at a time, from this object; None: as many as it takes.
        """
        self.base_url = base_url.rstrip("/")
        self._headers = {**headers, "Content-Type": "application/json", "Accept": "application/json"}
        self._secrets = sorted((text for text in secrets if len(text) >= _SHORTEST_SECRET), key=len, reverse=True)
        self.limit = AdaptiveLimit(max_concurrent_requests)

    async def start(self) -> None:
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=self._headers,
            proxy=_proxy_of(self.base_url),
            timeout=aiohttp.ClientTimeout(total=None, connect=CONNECT_TIMEOUT_S),
        )

    async def stop(self) -> None:
        await self._http.close()

    async def post(self, path: str, body: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        """The endpoint's answer to a request. Cancelling it drops the connection, so that the endpoint can stop too.

        Raises:
            Refused: with an error status that another try does not change, or with an error in the answer.
            RolloutError: there was no answer in time or in the tries that are made.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        tries = Tries()
        try:
            async with asyncio.timeout_at(deadline):
                while True:
                    try:
                        return await self._in_turn(path, body)
                    except Trouble as trouble:
                        wait_s = tries.wait_s(trouble, deadline - loop.time())
                    await sleep(wait_s)
        except TimeoutError:
            message = f"{self.base_url + path}: no answer within {timeout_s:.3g} s"
            raise gymq.RolloutError(gymq.FailureClass.DEADLINE_EXCEEDED, message) from None

    async def _in_turn(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        async with self.limit.slot() as sent_in:
            try:
                answer = await self._exchange(path, body)
            except Trouble as trouble:
                if trouble.asked_too_often:
                    self.limit.overloaded(sent_in, trouble.retry_after_s)
                raise
            self.limit.answered()
            return answer

    async def _exchange(self, path: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        """One try.

        Raises:
            Trouble: another try may do better.
            Refused, RolloutError: it would not.
        """
        url = self.base_url + path
        data = msgspec.json.encode(asked)
        try:
            async with self._http.post(url, data=data, allow_redirects=False) as response:
                body = bytearray()
                async for chunk in response.content.iter_any():
                    body += chunk
                    if len(body) > MAX_REPLY_BYTES:
                        raise self._nonsense(url, f"the reply is longer than {MAX_REPLY_BYTES} bytes")
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise self._unreachable(url, error) from None
        except (aiohttp.ClientError, OSError) as error:
            raise self._broken(url, error) from None
        return self._read(url, Head(response.status, response.reason or "", response.headers), bytes(body))

    def _read(self, url: str, head: Head, body: bytes) -> dict[str, Any]:
        if head.status // 100 == 2:
            return self._parsed(url, head, body)
        raise self._error(url, head, body)

    def _unreachable(self, url: str, error: Exception) -> Trouble:
        return Trouble(UNREACHABLE, self.redacted(f"{url}: cannot connect: {error}"))

    def _broken(self, url: str, error: Exception) -> Trouble:
        reason = str(error) or type(error).__name__
        return Trouble(BROKEN, self.redacted(f"{url}: the connection broke off: {reason}"))

    def _parsed(self, url: str, head: Head, body: bytes) -> dict[str, Any]:
        try:
            parsed = _decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self._nonsense(url, f"answered with {head.content_type}, not JSON: {error}") from None
        if not isinstance(parsed, dict):
            raise self._nonsense(url, "answered with JSON that is not an object")
        if parsed.get("error"):
            reason, code = _reason_and_code(parsed, "")
            reason = self.excerpt(reason)
            message = self.redacted(f"{url}: failed") + (f": {reason}" if reason else "")
            retryable = code != _QUOTA_USED_UP and not code.startswith("invalid")
            raise Refused(message, reason=reason, code=code, retryable=retryable)
        return parsed

    def _nonsense(self, url: str, reason: str) -> gymq.RolloutError:
        return gymq.RolloutError(gymq.FailureClass.MODEL_FAILED, self.redacted(f"{url}: {reason}"), retryable=True)

    def _error(self, url: str, head: Head, body: bytes) -> Exception:
        text = "an HTML page" if head.content_type == "text/html" else body.decode(errors="replace")
        try:
            reason, code = _reason_and_code(_decode(body), text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            reason, code = text, ""
        reason = self.excerpt(reason)
        message = self.redacted(f"{url}: {head.status} {head.reason}".rstrip())
        if reason:
            message += f": {reason}"
        if head.status // 100 == 3:
            target = self.excerpt(head.headers.get("Location", "nowhere"))
            message += f" (redirects are not followed; it points to {target})"
        policy = policy_of(head.status)
        if policy is None or code == _QUOTA_USED_UP:
            return Refused(message, reason=reason, code=code, retryable=False)
        return Trouble(
            policy,
            message,
            retry_after_s=retry_after_s(head.headers, datetime.now(UTC)),
            asked_too_often=head.status in ASKED_TOO_OFTEN,
        )

    def redacted(self, text: str) -> str:
        """The text without secrets."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text

    def excerpt(self, text: str) -> str:
        """A sensible length of somebody else's text, on one line, without secrets."""
        text = " ".join(self.redacted(text).split())
        return text if len(text) <= MAX_EXCERPT else f"{text[:MAX_EXCERPT]}..."


def _reason_and_code(parsed: Any, text: str) -> tuple[str, str]:
    """What an error body says, for people and for programs. OpenAI's form and its usual variations are known.

    Args:
        text: what to say if it says nothing.
    """
    error = parsed.get("error", parsed) if isinstance(parsed, dict) else parsed
    if not isinstance(error, dict):
        return error if isinstance(error, str) else text, ""
    message = error.get("message") or error.get("detail")
    code = error.get("code") or error.get("type")
    return message if isinstance(message, str) else text, code if isinstance(code, str) else ""


def _proxy_of(url: str) -> str | None:
    """The proxy that the environment (`HTTPS_PROXY`, `NO_PROXY`, ...) wants for a URL."""
    parts = urlsplit(url)
    proxy = getproxies().get(parts.scheme)
    return None if proxy is None or proxy_bypass(parts.netloc) else proxy
