"""One model call over HTTP: in the dialect of the client, as a whole or as events."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from aiohttp import web

from gymq.data.failure_status import StatusError
from gymq.ext.http.call_ids import with_ids_of_engine, with_unique_call_ids
from gymq.ext.http.dialects import Body, Dialect
from gymq.ext.http.errors import invalid, not_found, of_rollout_error
from gymq.ext.http.events import COMMENT
from gymq.ext.http.previous_responses import PreviousResponses
from gymq.ext.http.requests import json_response, parse_object
from gymq.failures import RolloutError
from gymq.protocol.tokens import to_json
from gymq.responses.usage import cached_tokens, reasoning_tokens

PREFIX = "/ng-rollout/{rollout}"
CAPTURE = "/training-token-capture"
"""What some harnesses put between the rollout and the path; it changes nothing here."""

PING_EVERY_S = 10.0  # so that no proxy takes a waiting stream for a dead one

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")

Ask = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
"""Asks the model: checked create parameters to a Responses object. Raises RolloutError or StatusError."""


async def answer(
    request: web.Request, dialect: Dialect, body: bytes, ask: Ask, previous: PreviousResponses
) -> web.StreamResponse:
    """Answer a request to a model, with failures in the form of the dialect.

    The model answers as a whole. If the client asks for a stream the answer is replayed as events once it is complete.

    Args:
        previous: the replies that a request may continue by an id.
    """
    try:
        asked = parse_object(body)
        if not isinstance(asked.get("stream"), bool | None):
            raise invalid("stream: expected true or false")
        if "model" in request.match_info:
            asked["model"] = request.match_info["model"]
        params = dialect.params(asked)
        if isinstance(params["input"], str):
            params["input"] = [{"type": "message", "role": "user", "content": params["input"]}]
        params = previous.continued(params)
        if asked.get("stream") if dialect.streams is None else dialect.streams:
            return await _stream(request, dialect, asked, _reply(dialect, asked, ask, params, previous))
        return json_response(to_json(await _reply(dialect, asked, ask, params, previous)))
    except StatusError as error:
        return json_response(to_json(dialect.error(error)), error.status)


async def _reply(dialect: Dialect, asked: Body, ask: Ask, params: Body, previous: PreviousResponses) -> Body:
    try:
        response = await ask({**params, "input": with_ids_of_engine(params["input"])})
        usage = response.get("usage")
        output = with_unique_call_ids(response["output"], params["input"])
        known = {"output": output, "usage": usage and _with_known_details(usage)}
        previous.keep(params["input"], {**response, **known})
        return dialect.reply({**response, **known}, asked)
    except RolloutError as error:
        raise of_rollout_error(error) from None


def _with_known_details(usage: Mapping[str, Any]) -> dict[str, Any]:
    """Return a usage in Responses form whose details are numbers: OpenAI's classes refuse a null there."""
    return {
        **usage,
        "input_tokens_details": {"cached_tokens": cached_tokens(usage)},
        "output_tokens_details": {"reasoning_tokens": reasoning_tokens(usage)},
    }


async def _stream(request: web.Request, dialect: Dialect, asked: Body, reply: Awaitable[Body]) -> web.StreamResponse:
    """Replay a reply as events.

    A reply that fails at once is still answered with a status; one that fails later ends in an event.
    """
    working = asyncio.ensure_future(reply)
    stream = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
    try:
        await asyncio.wait([working], timeout=PING_EVERY_S)
        if working.done() and (failed := working.exception()) is not None:
            raise failed
        await stream.prepare(request)
        while not working.done():
            await stream.write(COMMENT)
            await asyncio.wait([working], timeout=PING_EVERY_S)
        try:
            for event in dialect.to_events(working.result(), asked):
                await stream.write(event)
        except StatusError as error:
            await stream.write(dialect.error_event(error))
        await stream.write_eof()
        return stream
    finally:
        working.cancel()


def rollout_id(request: web.Request) -> str:
    """Return the rollout in a request's path.

    Raises:
        StatusError: 404; the path does not hold a valid rollout id.
    """
    given = request.match_info["rollout"]
    if not _ID.fullmatch(given):
        raise not_found("a rollout id is 1 to 128 of A-Z a-z 0-9 . _ - and begins with a letter or digit")
    return given
