"""One HTTP endpoint that takes and gives JSON: connections, retries, limits and readable errors.

It knows nothing of what is asked. Secrets (keys, header values) are cut out of every text that leaves it.
"""

from __future__ import annotations

import asyncio
import json
from asyncio import sleep
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import msgspec
from gymq.workers.models.openai_model.left_out import LeftOut
from gymq.workers.models.openai_model.limit import AdaptiveLimit
from gymq.workers.models.openai_model.overflow import ContextOverflow, exceeds, is_context_overflow, numbers_of_tokens
from gymq.workers.models.openai_model.refusal import UNFIT, Refused, reason_and_code
from gymq.workers.models.openai_model.retry import (
    ASKED_TOO_OFTEN,
    BROKEN,
    CONNECT_TIMEOUT_S,
    UNREACHABLE,
    Tries,
    Trouble,
    policy_of,
    retry_after_s,
)

import gymq
from gymq.ext.conversion.notes import note
from gymq.protocol.decoding import UNDECODABLE
from gymq.protocol.tokens import to_json

MAX_REPLY_BYTES = 64 * 1024 * 1024
MAX_LIST_BYTES = 1024 * 1024  # of the names of models
LIST_TIMEOUT_S = 5.0
MAX_CONNECTING = 256  # at a time; the handshakes of thousands take longer than one may

MAX_EXCERPT = 500  # characters of an endpoint's message that are passed on
_SHORTEST_SECRET = 4  # shorter ones protect nothing, and cutting them out would garble every text
_QUOTA_USED_UP = "insufficient_quota"

_TOP_UP = "the quota of the key is used up: raise it, or set another key"
# What to do about an answer that no request of this configuration will change.
_CURES = {
    401: "the key is refused: set GYMQ_MODEL_API_KEY (or OPENAI_API_KEY), or the key in the configuration",
    402: _TOP_UP,  # how OpenRouter and DeepSeek say it
    403: "the key may not do this: set another GYMQ_MODEL_API_KEY (or OPENAI_API_KEY), or key in the configuration",
    404: "no such path or model there: check the URL and the model's name",
    405: "check the URL",
    501: "check the URL",
}

_NO_LIST = (LookupError, TypeError, AttributeError)
LENGTHS = ("max_completion_tokens", "max_tokens", "max_output_tokens")
"""The fields for the longest reply that a request allows."""

_decode = msgspec.json.Decoder().decode


class NotJson(gymq.RolloutError):
    """The endpoint answered with a web page: the URL is that of something else, or lacks its `/v1`."""

    def __init__(self, message: str) -> None:
        super().__init__(gymq.FailureClass.MODEL_FAILED, message, retryable=True, curable=True)


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


class _Connector(aiohttp.TCPConnector):
    """Makes a limited number of connections at a time; who waits for a turn is not yet connecting."""

    def __init__(self) -> None:
        super().__init__(limit=0)
        self._turns = asyncio.Semaphore(MAX_CONNECTING)

    async def connect(self, *request: Any, **named: Any) -> Any:
        async with self._turns:
            return await super().connect(*request, **named)


class Endpoint:
    """Posts JSON to the paths below one base URL."""

    api = ""  # between the base URL and the paths of the dialects, where they begin with it

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
        self._left_out = LeftOut()
        self._lengths: dict[str, int | None] | None = None  # of the models' contexts, once they were asked for
        self.num_retries = 0
        self._host = urlsplit(self.base_url).netloc
        self._waiting: Counter[str] = Counter()  # requests that wait for their next try, by the reason
        self._refused = ""  # why the endpoint refused a request last

    async def start(self) -> None:
        self._http = aiohttp.ClientSession(
            connector=_Connector(),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=self._headers,
            proxy=_proxy_of(self.base_url),
            timeout=aiohttp.ClientTimeout(total=None, connect=CONNECT_TIMEOUT_S),
        )

    async def stop(self) -> None:
        await self._http.close()

    async def post(
        self,
        path: str,
        body: Mapping[str, Any],
        timeout_s: float,
        *,
        headers: Mapping[str, str] | None = None,
        tries: Tries | None = None,
    ) -> dict[str, Any]:
        """Return the endpoint's answer to a request. Cancelling drops the connection, so that the endpoint can stop.

        Args:
            headers: of this request; they go before those of all.
            tries: how often it is tried; as often as usual by default.

        Raises:
            ContextOverflow: the conversation does not fit into the model's context.
            Refused: with an error status that another try does not change, or with an error in the answer.
            RolloutError: no answer within the deadline or the number of attempts.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        tries = tries or Tries()
        try:
            async with asyncio.timeout_at(deadline):
                while True:
                    try:
                        return await self._examined(path, body, headers)
                    except Trouble as trouble:
                        wait_s = tries.wait_s(trouble, deadline - loop.time())
                        waits_for = trouble.waits_for
                    self.num_retries += 1
                    self._waiting[waits_for] += 1
                    try:
                        await sleep(wait_s)
                    finally:
                        self._waiting -= Counter([waits_for])
        except TimeoutError:
            message = f"{self.base_url + path}: no answer within {timeout_s:.3g} s"
            raise gymq.RolloutError(gymq.FailureClass.DEADLINE_EXCEEDED, message) from None

    async def models(self) -> dict[str, int | None]:
        """Return the models that the endpoint lists, and the tokens of their contexts; empty if it does not say."""
        try:
            async with asyncio.timeout(LIST_TIMEOUT_S):
                _, body = await self.get(f"{self.api}/models", MAX_LIST_BYTES)
            listed = {model["id"]: model.get("max_model_len") for model in _decode(body)["data"]}
            return {
                name: length if isinstance(length, int) else None
                for name, length in listed.items()
                if isinstance(name, str)
            }
        except (aiohttp.ClientError, OSError, *_NO_LIST, *UNDECODABLE):
            return {}

    async def get(self, path: str, max_bytes: int) -> tuple[int, bytes]:
        """Return the status of an answer and its body, which is empty if it is longer than allowed.

        Raises:
            aiohttp.ClientError, OSError: there is none.
        """
        async with self._http.get(self.base_url + path, allow_redirects=False) as response:
            body = bytearray()
            async for chunk in response.content.iter_any():
                body += chunk
                if len(body) > max_bytes:
                    return response.status, b""
            return response.status, bytes(body)

    def waits(self) -> Counter[str]:
        """Return how many requests wait for their next try, or because others were refused, by the reason."""
        return self._waiting + Counter({self._refused: self.limit.held_back})

    async def _examined(self, path: str, body: Mapping[str, Any], headers: Mapping[str, str] | None) -> dict[str, Any]:
        """Send a request, and again without each field that is refused and changes no reply."""
        while True:
            sent = self._left_out.sendable(path, body)
            try:
                return await self._in_turn(path, sent, headers)
            except Refused as refused:
                if refused.status in UNFIT and await self._is_too_long(sent, refused.reason):
                    raise ContextOverflow(str(refused)) from None
                if not self._left_out.learn(path, sent, refused):
                    raise

    async def _is_too_long(self, sent: Mapping[str, Any], said: str) -> bool:
        """Return whether a refusal in unknown words is about a conversation longer than the model's context."""
        if not numbers_of_tokens(said):
            return False
        if self._lengths is None:
            self._lengths = await self.models()
        length = self._lengths.get(sent.get("model", ""))
        asked = next((sent[name] for name in LENGTHS if isinstance(sent.get(name), int)), 0)
        return length is not None and exceeds(said, length, asked)

    async def _in_turn(self, path: str, body: Mapping[str, Any], headers: Mapping[str, str] | None) -> dict[str, Any]:
        async with self.limit.slot() as sent_in:
            try:
                answer = await self._exchange(path, body, headers)
            except Trouble as trouble:
                if trouble.asked_too_often:
                    self._refused = trouble.waits_for
                    self.limit.overloaded(sent_in, trouble.retry_after_s)
                raise
            self.limit.answered()
            return answer

    async def _exchange(self, path: str, asked: Mapping[str, Any], headers: Mapping[str, str] | None) -> dict[str, Any]:
        """Send a request once.

        Raises:
            Trouble: another try may do better.
            ContextOverflow, Refused, RolloutError: it would not.
        """
        url = self.base_url + path
        data = to_json(asked)
        try:
            async with self._http.post(url, data=data, headers=headers, allow_redirects=False) as response:
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
        message = self.redacted(f"{url}: cannot connect: {_reason_of(error)}")
        return Trouble(UNREACHABLE, message, waits_for=f"{self._host} cannot be reached")

    def _broken(self, url: str, error: Exception) -> Trouble:
        reason = str(error) or type(error).__name__
        message = self.redacted(f"{url}: the connection broke off: {reason}")
        return Trouble(BROKEN, message, waits_for=f"{self._host} breaks connections off")

    def _parsed(self, url: str, head: Head, body: bytes) -> dict[str, Any]:
        try:
            try:
                parsed = self._decoded(url, body)
            except UNDECODABLE:
                parsed = self._mended(body)
        except (ValueError, RecursionError) as error:
            if head.content_type == "text/html":
                text = f"{url}: answered with {head.content_type}, not JSON: check the URL, most end with /v1"
                raise NotJson(self.redacted(text)) from None
            raise self._nonsense(url, f"answered with {head.content_type}, not JSON: {error}") from None
        if not isinstance(parsed, dict):
            raise self._nonsense(url, "answered with JSON that is not an object")
        if parsed.get("error"):
            said, code = reason_and_code(parsed, "")
            reason = self.excerpt(said)
            message = self.redacted(f"{url}: failed") + (f": {reason}" if reason else "")
            if is_context_overflow(head.status, code, said):
                raise ContextOverflow(message)
            retryable = code != _QUOTA_USED_UP and not code.startswith("invalid")
            raise Refused(message, reason=reason, code=code, retryable=retryable)
        return parsed

    def _decoded(self, _url: str, body: bytes) -> Any:
        """Return the value in the JSON of an answer; an endpoint with long answers decodes only what it reads."""
        return _decode(body)

    def _mended(self, body: bytes) -> Any:
        """Return the value in JSON that is off: half surrogates and bytes that are not UTF-8 become U+FFFD, NaN null.

        Raises:
            ValueError, RecursionError: it is not JSON.
        """
        text = body.decode("utf-8-sig", errors="replace")
        parsed = json.loads(text, strict=False, parse_constant=lambda _: None)
        whole = (
            json.dumps(parsed, ensure_ascii=False).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        )
        note("replies with half surrogates, bytes that are not UTF-8, or NaN")
        return _decode(whole)

    def _nonsense(self, url: str, reason: str) -> gymq.RolloutError:
        return gymq.RolloutError(gymq.FailureClass.MODEL_FAILED, self.redacted(f"{url}: {reason}"), retryable=True)

    def _error(self, url: str, head: Head, body: bytes) -> Exception:
        text = "an HTML page" if head.content_type == "text/html" else body.decode(errors="replace")
        try:
            said, code = reason_and_code(_decode(body), text)
        except UNDECODABLE:
            said, code = text, ""
        reason = self.excerpt(said)
        message = self.redacted(f"{url}: {head.status} {head.reason}".rstrip())
        if reason:
            message += f": {reason}"
        if head.status // 100 == 3:
            target = self.excerpt(head.headers.get("Location", "nowhere"))
            message += f" (redirects are not followed; it points to {target})"
        if is_context_overflow(head.status, code, said):
            return ContextOverflow(message)
        policy = policy_of(head.status)
        if policy is None or code == _QUOTA_USED_UP:
            cure = _TOP_UP if code == _QUOTA_USED_UP else self._cure_of(head.status)
            if cure is not None:
                message += f"; {cure}"
            curable = cure is not None or head.status // 100 == 3
            return Refused(message, reason=reason, code=code, retryable=False, status=head.status, curable=curable)
        too_often = head.status in ASKED_TOO_OFTEN
        return Trouble(
            policy,
            message,
            waits_for=f"rate limited by {self._host} ({head.status})" if too_often else f"{self._host}: {head.status}",
            retry_after_s=retry_after_s(head.headers, datetime.now(UTC)),
            asked_too_often=too_often,
        )

    def _cure_of(self, status: int) -> str | None:
        if status == 404 and "/v1" not in self.base_url:
            return "no such path or model there: check the URL, most end with /v1, and the model's name"
        return _CURES.get(status)

    def redacted(self, text: str) -> str:
        """Return the text without secrets."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text

    def excerpt(self, text: str) -> str:
        """Return foreign text shortened to one line, without secrets."""
        text = " ".join(self.redacted(text).split())
        return text if len(text) <= MAX_EXCERPT else f"{text[:MAX_EXCERPT]}..."


def _reason_of(error: Exception) -> str:
    """Return why an endpoint cannot be reached, and what to do about it where that is known."""
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f"{error.os_error.strerror or error.os_error}; unknown host: check the URL"
    if isinstance(error, aiohttp.ClientSSLError):
        return f"{error}; check whether the URL begins with http:// or https://, and the certificate"
    if isinstance(error, aiohttp.ClientConnectorError) and isinstance(error.os_error, ConnectionRefusedError):
        return "connection refused; nothing listens there: is the server started?"
    return str(error)


def _proxy_of(url: str) -> str | None:
    """Return the proxy that the environment (`HTTPS_PROXY`, `NO_PROXY`, ...) wants for a URL."""
    parts = urlsplit(url)
    proxy = getproxies().get(parts.scheme)
    return None if proxy is None or proxy_bypass(parts.netloc) else proxy
