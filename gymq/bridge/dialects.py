"""The three dialects in which programs ask a model over HTTP: what they send, what they get, how they are told no."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from gymq import responses
from gymq.bridge import events
from gymq.bridge.failures import BridgeError, invalid
from gymq.tokens import encode_json

Body = dict[str, Any]

encode = msgspec.json.Encoder(enc_hook=encode_json).encode


@dataclass(frozen=True)
class Dialect:
    """One way to say a model call.

    Attributes:
        path: below the base URL.
        to_params: a request's body as Responses create parameters, not checked yet.
        from_response: the Responses object and the request's body as the answer's body.
        to_events: the answer's body and the request's as server-sent events.
        error: the body that tells a failure.
        error_event: the event that tells a failure where a stream has begun.
    """

    path: str
    to_params: Callable[[Body], Body]
    from_response: Callable[[Body, Body], Body]
    to_events: Callable[[Body, Body], Iterator[bytes]]
    error: Callable[[BridgeError], Body]
    error_event: Callable[[BridgeError], bytes]

    def params(self, body: Body) -> Body:
        """Checked create parameters.

        Raises:
            BridgeError: 422, naming the member that does not fit.
        """
        try:
            return responses.validate_params(self.to_params(body))
        except responses.ResponsesError as error:
            raise invalid(str(error)) from None

    def reply(self, response: Body, body: Body) -> Body:
        """The answer to a request.

        Raises:
            BridgeError: 500; the response has something that this dialect cannot say.
        """
        try:
            return self.from_response(response, body)
        except responses.ResponsesError as error:
            raise BridgeError(500, "model_failed", f"the reply cannot be said here: {error}", stage="model") from None


def _without_stream(body: Body) -> Body:
    return {name: value for name, value in body.items() if name not in ("stream", "stream_options")}


def _openai_error(error: BridgeError) -> Body:
    kind = "invalid_request_error" if error.status < 500 else "server_error"
    return {"error": {"message": error.message, "type": kind, "code": error.failure_class, "param": None}}


_ANTHROPIC_KINDS = {401: "authentication_error", 404: "not_found_error", 413: "request_too_large"}


def _anthropic_error(error: BridgeError) -> Body:
    kind = _ANTHROPIC_KINDS.get(error.status, "invalid_request_error" if error.status < 500 else "api_error")
    return {"type": "error", "error": {"type": kind, "message": error.message}}


def _messages_reply(response: Body, body: Body) -> Body:
    return responses.to_anthropic_message(response, body.get("model") or response["model"])


def _failed_response(error: BridgeError) -> bytes:
    return events.event({"type": "error", "code": error.failure_class, "message": error.message, "param": None})


RESPONSES = Dialect(
    "/v1/responses",
    to_params=_without_stream,
    from_response=lambda response, body: response,
    to_events=lambda answer, body: events.of_response(answer),
    error=_openai_error,
    error_event=_failed_response,
)
CHAT = Dialect(
    "/v1/chat/completions",
    to_params=lambda body: responses.from_chat_request(_without_stream(body)),
    from_response=lambda response, body: responses.to_chat_completion(response),
    to_events=lambda answer, body: events.of_completion(answer, with_usage=_wants_usage(body)),
    error=_openai_error,
    error_event=lambda error: events.data(_openai_error(error)),
)
MESSAGES = Dialect(
    "/v1/messages",
    to_params=lambda body: responses.from_anthropic_request(_without_stream(body)),
    from_response=_messages_reply,
    to_events=lambda answer, body: events.of_message(answer),
    error=_anthropic_error,
    error_event=lambda error: events.event(_anthropic_error(error)),
)
DIALECTS = (RESPONSES, CHAT, MESSAGES)


def _wants_usage(body: Mapping[str, Any]) -> bool:
    options = body.get("stream_options")
    return isinstance(options, dict) and bool(options.get("include_usage"))
