"""The OpenAPI document of the bridge."""

from __future__ import annotations

from typing import Any

from gymq.ext.http.dialects import RESPONSES, Dialect, dialects
from gymq.ext.http.model_calls import CAPTURE, PREFIX

Schema = dict[str, Any]

_ANY_OBJECT: Schema = {"type": "object"}
_PARAMS: Schema = {
    "type": "object",
    "required": ["input"],
    "properties": {"input": {"oneOf": [{"type": "string"}, {"type": "array", "items": _ANY_OBJECT}]}},
}
_ROW: Schema = {
    "type": "object",
    "required": ["responses_create_params"],
    "properties": {
        "responses_create_params": _PARAMS,
        "agent_ref": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}},
    },
}
_ANSWERED_ROW: Schema = {
    **_ROW,
    "required": ["responses_create_params", "response"],
    "properties": {**_ROW["properties"], "response": _ANY_OBJECT},
}
_RESULT: Schema = {
    "type": "object",
    "required": ["reward", "response", "responses_create_params"],
    "properties": {
        "reward": {"type": "number"},
        "response": _ANY_OBJECT,
        "responses_create_params": _ANY_OBJECT,
        "mask_sample": {"type": "boolean"},
        "gymq": _ANY_OBJECT,
    },
}
_ERROR: Schema = {
    "type": "object",
    "required": ["error"],
    "properties": {"error": {"type": "object", "required": ["message"], "properties": {"message": {"type": "string"}}}},
}
_RESULTS: Schema = {
    "type": "object",
    "required": ["verify_responses"],
    "properties": {"verify_responses": {"type": "array", "items": _ANY_OBJECT}},
}
_ERRORS = {
    "400": "The request cannot be read, or has no session.",
    "401": "The key is missing or wrong, or the session is too old.",
    "403": "A page of another origin may have sent it.",
    "404": "There is no such instance, path or tool.",
    "405": "The path does not know the method.",
    "408": "The body took too long to arrive.",
    "409": "Cancelled by an operator of the cluster.",
    "413": "The body is too large.",
    "415": "The body is compressed, or its type is not JSON.",
    "422": "It would end the same again: the row or a parameter does not fit.",
    "500": "It says nothing about the row: trying again may help.",
    "503": "The bridge is shutting down, or not ready.",
    "504": "The time was over.",
}


def document(with_key: bool) -> Schema:
    """Return the OpenAPI document.

    Args:
        with_key: whether the bridge requires a key.
    """
    paths = dict(_paths())
    security: list[Schema] = [{"key": []}] if with_key else []
    schemes = {"key": {"type": "http", "scheme": "bearer"}} if with_key else {}
    return {
        "openapi": "3.1.0",
        "info": {"title": "gymq bridge", "version": "1"},
        "paths": paths,
        "security": security,
        "components": {"securitySchemes": schemes},
    }


def _paths() -> Any:
    opened: Schema = {"security": []}
    yield "/", {"get": _operation("Whether the process answers.") | opened}
    yield "/health", {"get": _operation("Whether requests would be served.") | opened}
    yield "/openapi.json", {"get": _operation("This document.") | opened}
    yield "/global_config_dict_yaml", {"get": _operation("Addresses: YAML in a JSON text.", answer={"type": "string"})}
    instances: Schema = {"type": "array", "items": _ANY_OBJECT}
    yield "/server_instances", {"get": _operation("All instances.", answer=instances)}
    for place in ("", "/agents/{instance}"):
        yield f"{place}/run", {"post": _operation("Roll out a row.", _ROW, _RESULT, place)}
        summary = "Statistics over results."
        yield f"{place}/aggregate_metrics", {"post": _operation(summary, _RESULTS, _ANY_OBJECT, place)}
    agent = "/agents/{instance}"
    yield f"{agent}/v1/responses", {"post": _operation("An agent's response.", _PARAMS, _ANY_OBJECT, agent)}
    for place in ("", "/models/{instance}"):
        yield f"{place}/v1/models", {"get": _operation("The models.", None, _ANY_OBJECT, place)}
        for rollout in ("", PREFIX, PREFIX + CAPTURE):
            for dialect in dialects():
                asked = _PARAMS if dialect is RESPONSES else _asked(dialect)
                path = f"{place}{rollout}{dialect.path}"
                operation = _operation("Ask a model.", asked, _ANY_OBJECT, place + rollout)
                operation["responses"]["200"]["content"]["text/event-stream"] = {"schema": {"type": "string"}}
                yield path, {"post": operation}
    for place in ("", "/resources/{instance}"):
        yield f"{place}/seed_session", {"post": _operation("Open a session.", _ROW, _ANY_OBJECT, place)}
        yield f"{place}/verify", {"post": _operation("Score a row with its response.", _ANSWERED_ROW, _RESULT, place)}
        yield f"{place}/close_session", {"post": _operation("Give a session up.", None, _ANY_OBJECT, place)}
    place = "/resources/{instance}/{tool}"
    yield place, {"post": _operation("Call a tool.", _ANY_OBJECT, None, place)}


def _asked(dialect: Dialect) -> Schema:
    """Return the schema of a request."""
    fields: Schema = {dialect.conversation: {"type": "array", "items": _ANY_OBJECT}}
    if dialect.streams is None:
        fields["stream"] = {"type": "boolean"}
    return {"type": "object", "required": [dialect.conversation], "properties": fields}


def _operation(summary: str, body: Schema | None = None, answer: Schema | None = None, path: str = "") -> Schema:
    """Return an operation.

    Args:
        body: schema of the request's JSON.
        answer: schema of the answer's JSON; None: any.
        path: path with the names of its parameters in braces.
    """
    done: Schema = {"description": "Done."}
    if answer is not None:
        done["content"] = {"application/json": {"schema": answer}}
    failed = {"content": {"application/json": {"schema": _ERROR}}}
    operation: Schema = {
        "summary": summary,
        "responses": {"200": done, **{status: {"description": why, **failed} for status, why in _ERRORS.items()}},
    }
    if body is not None:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    names = [part[1:-1] for part in path.split("/") if part.startswith("{")]
    if names:
        operation["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
            for name in names
        ]
    return operation
