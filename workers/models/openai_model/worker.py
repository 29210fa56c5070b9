"""Any endpoint that speaks OpenAI's Responses or Chat Completions dialect over HTTP."""

from __future__ import annotations

import re
import time
from typing import Any

import gymq
from gymq.responses import (
    InvalidReply,
    ResponsesError,
    chat_to_response,
    responses_to_chat,
    validate_params,
    validate_response,
)
from gymq.tokens import TOKEN_MEMBERS
from workers.models.openai_model.endpoint import Endpoint, Refused
from workers.models.openai_model.endpoint_model import EndpointModel
from workers.models.openai_model.limit import AdaptiveLimit
from workers.models.openai_model.options import OpenAIOptions

# How endpoints say that prompt and reply do not fit into the model's context, as an error code or in words.
_CONTEXT_OVERFLOW = re.compile(
    r"context[ _](length|window)|maximum context|prompt is too long|max_tokens must be at least 1", re.IGNORECASE
)
_OURS = frozenset({*TOKEN_MEMBERS, "routed_experts"})  # members of items that foreign endpoints do not know


class OpenAIModel(EndpointModel):
    """Sends each request to one endpoint and checks what comes back."""

    Options = OpenAIOptions
    options: OpenAIOptions

    def make_endpoint(self) -> Endpoint:
        """What requests are sent to; a worker for another kind of endpoint overrides it."""
        return Endpoint(
            self.options.openai_base_url,
            headers=self.options.headers(),
            secrets=self.options.secrets(),
            max_concurrent_requests=self.options.request_limit,
        )

    def limits(self) -> list[AdaptiveLimit]:
        return [self._endpoint.limit]

    async def start(self) -> None:
        await super().start()
        self._endpoint = self.make_endpoint()
        await self._endpoint.start()

    async def stop(self) -> None:
        await self._endpoint.stop()
        await super().stop()

    async def ask(self, request: gymq.ModelRequest) -> dict[str, Any]:
        chat = self.options.dialect == "chat"
        try:
            params = self._sendable(request.params)
            asked = responses_to_chat(params) if chat else params
        except ResponsesError as error:
            raise gymq.InvalidTask(f"the request cannot be sent: {error}") from None
        body = {**self.options.extra_body, **asked, "model": self.options.openai_model}
        path = "/chat/completions" if chat else "/responses"
        try:
            answer = await self._endpoint.post(path, body, request.timeout_s)
            return self._chat_reply(answer, params) if chat else _responses_reply(answer)
        except Refused as refused:
            if _CONTEXT_OVERFLOW.search(f"{refused.code} {refused.reason}"):
                return self._cut_short(params)
            raise _failed(str(refused), retryable=refused.retryable) from None
        except InvalidReply as error:
            message = f"{self._endpoint.base_url}{path}: unusable reply: {error}"
            raise _failed(self._endpoint.excerpt(message), retryable=True) from None

    def _sendable(self, params: dict[str, Any]) -> dict[str, Any]:
        """What the caller set, without what only we understand."""
        checked = {name: value for name, value in validate_params(params).items() if value is not None}
        if isinstance(checked["input"], list):
            checked["input"] = [
                {name: value for name, value in item.items() if name not in _OURS}
                for item in checked["input"]
                if not (self.options.drop_input_reasoning_items and item.get("type") == "reasoning")
            ]
        return checked

    def _chat_reply(self, completion: dict[str, Any], params: dict[str, Any]) -> dict[str, Any]:
        separated = _put_reasoning_into_text(completion)
        return chat_to_response(completion, params, model=self.options.openai_model, split_reasoning=separated)

    def _cut_short(self, params: dict[str, Any]) -> dict[str, Any]:
        """An empty reply that says it is incomplete: the conversation has filled the model's context."""
        choice = {"finish_reason": "length", "message": {"content": None}}
        completion = {"created": int(time.time()), "choices": [choice]}
        return chat_to_response(completion, params, model=self.options.openai_model, split_reasoning=False)


def _responses_reply(answer: dict[str, Any]) -> dict[str, Any]:
    status = answer.get("status", "completed")
    if status not in ("completed", "incomplete"):
        raise InvalidReply("status", f"{status!r} instead of completed or incomplete")
    return validate_response(answer)


def _put_reasoning_into_text(completion: dict[str, Any]) -> bool:
    """Put reasoning that the endpoint gave in a member of its own where the conversion to items looks for it."""
    try:
        message = completion["choices"][0]["message"]
        reasoning = message.get("reasoning_content") or message.get("reasoning")
    except (LookupError, TypeError, AttributeError):
        return False  # the conversion says what is wrong
    if not isinstance(reasoning, str):
        return False
    message["content"] = f"<think>{reasoning}</think>{message.get('content') or ''}"
    return True


def _failed(message: str, *, retryable: bool) -> gymq.RolloutError:
    return gymq.RolloutError(gymq.FailureClass.MODEL_FAILED, message, retryable=retryable)
