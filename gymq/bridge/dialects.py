"""The four dialects in which programs call a model over HTTP: their requests, replies and errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gymq import responses
from gymq.bridge import events
from gymq.bridge.failures import BridgeError, invalid

Body = dict[str, Any]


@dataclass(frozen=True)
class Dialect:
    """One API format for model calls.

    Attributes:
        path: path below the base URL; `{model}` in it is the request's field `model`.
        streams: whether the answer is a stream; None: the request's field `stream` says it.
        to_params: converts a request's body to Responses create parameters, not checked yet.
        from_response: converts the Responses object and the request's body to the answer's body.
        to_events: converts the answer's body and the request's to server-sent events.
        error: returns the body that reports a failure.
        error_event: returns the event that reports a failure where a stream has begun.
    """

    path: str
    to_params: Callable[[Body], Body]
    from_response: Callable[[Body, Body], Body]
    to_events: Callable[[Body, Body], Iterator[bytes]]
    error: Callable[[BridgeError], Body]
    error_event: Callable[[BridgeError], bytes]
    streams: bool | None = None

    def params(self, body: Body) -> Body:
        """Return the create parameters of a request, checked.

        Raises:
            BridgeError: 422; the message names the invalid field.
        """
        try:
            return responses.validate_params(self.to_params(body))
        except responses.ResponsesError as error:
            raise invalid(str(error)) from None

    def reply(self, response: Body, body: Body) -> Body:
        """Return the answer to a request.

        Raises:
            BridgeError: 500; the response holds something that this dialect cannot express.
        """
        try:
            return self.from_response(response, body)
        except responses.ResponsesError as error:
            raise BridgeError(
                500, "model_failed", f"the reply does not fit this dialect: {error}", stage="model"
            ) from None


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
    to_params=lambda body: responses.foreign_params(_without_stream(body)),
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


def _gemini(method: str, *, streams: bool) -> Dialect:
    return Dialect(
        f"/v1beta/models/{{model}}:{method}",
        to_params=responses.from_gemini_request,
        from_response=lambda response, body: responses.to_gemini_answer(response, body["model"]),
        to_events=lambda answer, body: events.of_gemini_answer(answer),
        error=_gemini_error,
        error_event=lambda error: events.data(_gemini_error(error)),
        streams=streams,
    )


_GEMINI_KINDS = {401: "UNAUTHENTICATED", 404: "NOT_FOUND"}


def _gemini_error(error: BridgeError) -> Body:
    kind = _GEMINI_KINDS.get(error.status, "INVALID_ARGUMENT" if error.status < 500 else "INTERNAL")
    return {"error": {"code": error.status, "message": error.message, "status": kind}}


GEMINI = (_gemini("generateContent", streams=False), _gemini("streamGenerateContent", streams=True))
DIALECTS = (RESPONSES, CHAT, MESSAGES, *GEMINI)


def _wants_usage(body: Mapping[str, Any]) -> bool:
    options = body.get("stream_options")
    return isinstance(options, dict) and bool(options.get("include_usage"))
