"""Dialects in which programs call a model over HTTP: their requests, replies and errors; OpenAI's two are here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from gymq import responses
from gymq.data.failure_status import StatusError
from gymq.ext.conversion.foreign import foreign_params
from gymq.ext.http import events
from gymq.ext.http.chat_completion import to_chat_completion
from gymq.ext.http.chat_request import from_chat_request
from gymq.ext.http.errors import invalid
from gymq.extensions import extensions

Body = dict[str, Any]


@dataclass(frozen=True)
class Dialect:
    """One API format for model calls.

    Attributes:
        path: path below the base URL; `{model}` in it is the request's field `model`.
        to_params: converts a request's body to Responses create parameters, not checked yet.
        from_response: converts the Responses object and the request's body to the answer's body.
        to_events: converts the answer's body and the request's to server-sent events.
        error: returns the body that reports a failure.
        error_event: returns the event that reports a failure where a stream has begun.
        conversation: field of a request that has the messages.
        streams: whether the answer is a stream; None: the request's field `stream` says it.
    """

    path: str
    to_params: Callable[[Body], Body]
    from_response: Callable[[Body, Body], Body]
    to_events: Callable[[Body, Body], Iterator[bytes]]
    error: Callable[[StatusError], Body]
    error_event: Callable[[StatusError], bytes]
    conversation: str
    streams: bool | None = None

    def params(self, body: Body) -> Body:
        """Return the create parameters of a request, checked.

        Raises:
            StatusError: 422; the message names the invalid field.
        """
        try:
            return responses.validate_params(self.to_params(body))
        except responses.ResponsesError as error:
            raise invalid(str(error)) from None

    def reply(self, response: Body, body: Body) -> Body:
        """Return the answer to a request.

        Raises:
            StatusError: 500; the response holds something that this dialect cannot express.
        """
        try:
            return self.from_response(response, body)
        except responses.ResponsesError as error:
            raise StatusError(
                500, "model_failed", f"the reply does not fit this dialect: {error}", stage="model"
            ) from None


def without_stream(body: Body) -> Body:
    return {name: value for name, value in body.items() if name not in ("stream", "stream_options")}


def _openai_error(error: StatusError) -> Body:
    kind = "invalid_request_error" if error.status < 500 else "server_error"
    return {"error": {"message": error.message, "type": kind, "code": error.failure_class, "param": None}}


def _failed_response(error: StatusError) -> bytes:
    return events.event({"type": "error", "code": error.failure_class, "message": error.message, "param": None})


RESPONSES = Dialect(
    "/v1/responses",
    to_params=lambda body: foreign_params(without_stream(body)),
    from_response=lambda response, body: response,
    to_events=lambda answer, body: events.of_response(answer),
    error=_openai_error,
    error_event=_failed_response,
    conversation="input",
)
CHAT = Dialect(
    "/v1/chat/completions",
    to_params=lambda body: from_chat_request(without_stream(body)),
    from_response=lambda response, body: to_chat_completion(response),
    to_events=lambda answer, body: events.of_completion(answer, with_usage=_wants_usage(body)),
    error=_openai_error,
    error_event=lambda error: events.data(_openai_error(error)),
    conversation="messages",
)


@cache
def dialects() -> tuple[Dialect, ...]:
    """Return all dialects: these two, and those that the entry points `gymq.dialects` name."""
    return (RESPONSES, CHAT, *(one for found in extensions("dialects") for one in found.load()))


def _wants_usage(body: Mapping[str, Any]) -> bool:
    options = body.get("stream_options")
    return isinstance(options, dict) and bool(options.get("include_usage"))
