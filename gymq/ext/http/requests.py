"""Reading requests and writing answers: bounded, timed, and with errors in JSON."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Any

import msgspec
from aiohttp import web
from aiohttp.http import HttpProcessingError

from gymq.data.failure_status import StatusError
from gymq.ext.http.errors import invalid
from gymq.ext.http.memory import BodyMemory, MemoryBudget
from gymq.protocol.decoding import UNDECODABLE
from gymq.redaction import redact

log = logging.getLogger("gymq.ext.http")
connections_log = logging.getLogger("gymq.ext.http.connections")

JSON = "application/json"
SMALL_BYTES = 1 << 20  # of each body, which no budget counts, so that large ones cannot hold small ones up
BODY_GRACE_S = 30.0  # for a body to begin; after that it must come at the least rate
LEAST_BYTES_PER_S = 128 << 10

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def _without_traceback(record: logging.LogRecord) -> bool:
    """Shorten log records of errors that the client caused.

    Input that is not HTTP is logged in one line, and a client that hung up is not logged at all.
    """
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, ConnectionError):
        return False
    if isinstance(error, HttpProcessingError | web.RequestPayloadError):
        record.msg = redact(f"{record.getMessage()}: {' '.join(str(error).split())}")
        record.args = ()
        record.exc_info = None
    return True


connections_log.addFilter(_without_traceback)


def json_response(body: bytes, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, content_type=JSON)


def error_response(error: StatusError) -> web.Response:
    headers = {"WWW-Authenticate": "Bearer"} if error.status == 401 else {}
    return web.Response(body=error.body(), status=error.status, content_type=JSON, headers=headers)


@web.middleware
async def errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn any exception of a handler into a status and a body that says why."""
    try:
        return await handler(request)
    except StatusError as error:
        return error_response(error)
    except web.HTTPException as error:
        if error.status < 400:
            raise
        twice = "; the path has `//`: remove the `/` at the end of the base URL" if "//" in request.path else ""
        text = f"{request.method} {request.path}: {error.reason}{twice}"
        refused = error_response(StatusError(error.status, "http", text))
        if isinstance(error, web.HTTPMethodNotAllowed):
            refused.headers["Allow"] = ", ".join(sorted(error.allowed_methods))
        return refused
    except (asyncio.CancelledError, ConnectionError):
        raise
    except Exception as error:
        log.exception("%s %s failed", request.method, request.path)
        return error_response(StatusError(500, "bridge_failed", f"the bridge failed: {type(error).__name__}"))


def check_key(request: web.Request, expected: str) -> None:
    """Check whether a request names the key, as `Authorization: Bearer`, in Anthropic's way or in Google's.

    Raises:
        StatusError: 401; it does not.
    """
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        given = request.headers.get("x-api-key", "") or request.headers.get("x-goog-api-key", "")
    if not hmac.compare_digest(given.strip().encode("utf-8", "surrogateescape"), expected.encode()):
        raise StatusError(401, "unauthorized", "this needs the header `Authorization: Bearer KEY` with the right key")


async def read_body(
    request: web.Request, *, max_bytes: int, timeout_s: float, budget: MemoryBudget | None = None
) -> bytes:
    """Return the body of a request.

    Args:
        timeout_s: seconds for all of it. It must also arrive at `LEAST_BYTES_PER_S` or faster.
        budget: bytes that large bodies being read may take together; reading stops when it is spent.

    Raises:
        StatusError: 415 if it is compressed; 413 if it is larger than `max_bytes`; 408 if it arrives too slowly.
    """
    encoding = request.headers.get("Content-Encoding", "identity")
    if encoding.strip().lower() != "identity":
        raise StatusError(415, "compressed", f"a body may not have a Content-Encoding ({encoding:.80}): send it plain")
    length = request.content_length
    if length is not None and length > max_bytes:
        raise _too_large(max_bytes)
    with ExitStack() as held:
        return await _read(request, max_bytes, timeout_s, budget, held)


async def _read(
    request: web.Request, max_bytes: int, timeout_s: float, budget: MemoryBudget | None, held: ExitStack
) -> bytes:
    parts = []
    size = 0
    share: BodyMemory | None = None
    now = asyncio.get_running_loop().time
    begun = now()  # moved by what is not the client's fault
    try:
        async with asyncio.timeout_at(begun + min(timeout_s, BODY_GRACE_S)) as limit:
            async for part in request.content.iter_any():
                size += len(part)
                if size > max_bytes:
                    raise _too_large(max_bytes)
                parts.append(part)
                if budget is not None and size > SMALL_BYTES:
                    share = share or held.enter_context(budget.share())
                    if not share.take(len(part)):
                        limit.reschedule(None)
                        waits_since = now()
                        await share.wait(len(part))
                        begun += now() - waits_since
                limit.reschedule(begun + min(timeout_s, BODY_GRACE_S + size / LEAST_BYTES_PER_S))
    except TimeoutError:
        text = f"the body came too slowly: {size} bytes in {now() - begun:.1f} s"
        raise StatusError(408, "timeout", text) from None
    except web.RequestPayloadError as error:
        raise StatusError(400, "bad_request", f"the body cannot be read: {error}") from None
    return b"".join(parts)


def _too_large(max_bytes: int) -> StatusError:
    return StatusError(413, "too_large", f"a body may have {max_bytes} bytes at most")


def parse_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object in a body.

    Raises:
        StatusError: 422; the body is not a JSON object.
    """
    try:
        value = msgspec.json.decode(body)
        body.decode()
    except UNDECODABLE as error:
        why = "it holds half of a surrogate pair" if _has_half_a_pair(body) else str(error)
        raise invalid(f"the body is not JSON: {why}") from None
    if not isinstance(value, dict):
        raise invalid(f"the body must be a JSON object, not {type(value).__name__}")
    return value


def _has_half_a_pair(body: bytes) -> bool:
    """Return whether a body is refused only since an escape in it, such as `\\ud83d`, is half of a character."""
    try:
        json.loads(body)
    except (ValueError, RecursionError):
        return False
    return b"\\u" in body


async def alive(request: web.Request) -> web.Response:
    """Answer liveness probes, which have no key; redirect a browser to the viewer."""
    if "text/html" in request.headers.get("Accept", ""):
        return web.Response(status=307, headers={"Location": "/ui/", "Vary": "Accept"})
    return json_response(b'{"status": "ok"}')
