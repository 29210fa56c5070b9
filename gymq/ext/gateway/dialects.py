"""The dialects of Anthropic and Google."""

from __future__ import annotations

from gymq.data.failure_status import StatusError
from gymq.ext.gateway import events
from gymq.ext.gateway.from_anthropic import from_anthropic_request
from gymq.ext.gateway.from_gemini import from_gemini_request
from gymq.ext.gateway.to_anthropic import to_anthropic_message
from gymq.ext.gateway.to_gemini import to_gemini_answer
from gymq.ext.http.dialects import Body, Dialect, without_stream
from gymq.ext.http.events import data, event

_ANTHROPIC_KINDS = {401: "authentication_error", 404: "not_found_error", 413: "request_too_large"}


def _anthropic_error(error: StatusError) -> Body:
    kind = _ANTHROPIC_KINDS.get(error.status, "invalid_request_error" if error.status < 500 else "api_error")
    return {"type": "error", "error": {"type": kind, "message": error.message}}


def _messages_reply(response: Body, body: Body) -> Body:
    return to_anthropic_message(response, body.get("model") or response["model"])


MESSAGES = Dialect(
    "/v1/messages",
    to_params=lambda body: from_anthropic_request(without_stream(body)),
    from_response=_messages_reply,
    to_events=lambda answer, body: events.of_message(answer),
    error=_anthropic_error,
    error_event=lambda error: event(_anthropic_error(error)),
    conversation="messages",
)


def _gemini(method: str, *, streams: bool) -> Dialect:
    return Dialect(
        f"/v1beta/models/{{model}}:{method}",
        to_params=from_gemini_request,
        from_response=lambda response, body: to_gemini_answer(response, body["model"]),
        to_events=lambda answer, body: events.of_gemini_answer(answer),
        error=_gemini_error,
        error_event=lambda error: data(_gemini_error(error)),
        conversation="contents",
        streams=streams,
    )


_GEMINI_KINDS = {401: "UNAUTHENTICATED", 404: "NOT_FOUND"}


def _gemini_error(error: StatusError) -> Body:
    kind = _GEMINI_KINDS.get(error.status, "INVALID_ARGUMENT" if error.status < 500 else "INTERNAL")
    return {"error": {"code": error.status, "message": error.message, "status": kind}}


GEMINI = (_gemini("generateContent", streams=False), _gemini("streamGenerateContent", streams=True))
DIALECTS = (MESSAGES, *GEMINI)
