"""The model of a rollout in the process of verifiers: verifiers' endpoint, asked over HTTP for each call."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

import aiohttp
import msgspec
import verifiers.v1 as vf

from gymq.ext.conversion.from_chat import chat_to_response
from gymq.ext.conversion.to_chat import responses_to_chat
from gymq.failures import RolloutError
from gymq.protocol.messages import FailureClass, Stage
from gymq.redaction import redact
from gymq.responses import Item, ResponsesError


class _Endpoint:
    def __init__(self, http: aiohttp.ClientSession, url: str, model: str, trace: vf.Trace) -> None:
        self._http = http
        self._url = url
        self._model = model
        self._trace = trace
        self._said: dict[str, Mapping[str, Any]] = {}

    async def ask(self, params: dict[str, Any]) -> Item:
        request = responses_to_chat(params) | {"model": self._model}
        request.pop("metadata", None)
        # As the model wrote them: only then does verifiers see that the conversation continues.
        request["messages"] = [self._said.get(_key(message), message) for message in request["messages"]]
        try:
            async with self._http.post(self._url, json=request) as answer:
                body = await answer.read()
        except (aiohttp.ClientError, OSError) as error:
            text = f"verifiers' endpoint cannot be asked: {type(error).__name__}: {error}"
            raise RolloutError(FailureClass.MODEL_FAILED, text, stage=Stage.MODEL) from None
        if answer.status != 200 and self._trace.stop_condition is not None:
            return _cut_short(params, self._model)
        try:
            if answer.status != 200:
                raise ValueError(body.decode(errors="replace")[:500])
            completion = msgspec.json.decode(body)
            reply = chat_to_response(completion, params, model=self._model, split_reasoning=True)
        except (ValueError, ResponsesError) as error:
            text = f"verifiers' endpoint answered with status {answer.status}: {redact(str(error))}"
            raise RolloutError(FailureClass.MODEL_FAILED, text, stage=Stage.MODEL) from None
        (message,) = responses_to_chat({"input": reply["output"]})["messages"]
        self._said[_key(message)] = completion["choices"][0]["message"]
        return reply


_endpoint: ContextVar[_Endpoint] = ContextVar("endpoint")


@asynccontextmanager
async def asking(url: str, secret: str, model: str, trace: vf.Trace) -> AsyncIterator[None]:
    """Have `ask` ask an endpoint, in this task and those that it starts meanwhile.

    Args:
        url: of the endpoint, below which it speaks Chat Completions.
        secret: its password.
        model: name that it is asked for.
        trace: of the rollout; verifiers notes there when it has ended it.
    """
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=30.0)
    headers = {"Authorization": f"Bearer {secret}"}
    async with aiohttp.ClientSession(timeout=timeout, headers=headers) as http:
        token = _endpoint.set(_Endpoint(http, f"{url}/chat/completions", model, trace))
        try:
            yield
        finally:
            _endpoint.reset(token)


async def ask(params: dict[str, Any]) -> Item:
    """Return the endpoint's reply to a Responses request.

    Raises:
        RolloutError: there is none.
    """
    return await _endpoint.get().ask(params)


def _key(message: Mapping[str, Any]) -> str:
    return json.dumps(message, sort_keys=True)


def _cut_short(params: Mapping[str, Any], model: str) -> Item:
    """Return a reply that ends a rollout, which verifiers has ended, such as at its limit of turns; it is verified."""
    choice = {"message": {"role": "assistant", "content": ""}, "finish_reason": "length"}
    return chat_to_response({"choices": [choice], "created": 0}, params, model=model, split_reasoning=False)
