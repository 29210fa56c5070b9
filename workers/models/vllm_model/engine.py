"""One vLLM engine over HTTP: the endpoint of `openai_model`, with two more kinds of answers."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import msgspec
from gymq.workers.models.openai_model.endpoint import Endpoint, Head
from gymq.workers.models.openai_model.retry import UNREACHABLE, Trouble
from gymq.workers.models.vllm_model.asked import ContextOverflow, is_context_overflow
from gymq.workers.models.vllm_model.completion_body import decode_completion
from gymq.workers.models.vllm_model.options import VLLMOptions

import gymq

_API = "/v1"


class Unreachable(gymq.RolloutError):
    """No connection came about in the tries that are made; nothing was sent."""

    def __init__(self, message: str) -> None:
        super().__init__(gymq.FailureClass.MODEL_FAILED, message, retryable=True, curable=True)


class Engine(Endpoint):
    """Posts JSON to one engine. Paths of the OpenAI dialects begin with `api`, the engine's own with nothing."""

    def __init__(self, base_url: str, options: VLLMOptions) -> None:
        root = base_url.removesuffix(_API)
        super().__init__(
            root,
            headers=options.headers(),
            secrets=options.secrets(),
            max_concurrent_requests=options.request_limit,
        )
        self.api = _API if base_url.endswith(_API) else ""

    async def post(self, path: str, body: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        """The engine's answer.

        Raises:
            ContextOverflow: the prompt is too long, or leaves no room for a reply.
            Refused, RolloutError: see `Endpoint.post`.
            Unreachable: another engine may take the request without anything being done twice.
        """
        try:
            return await super().post(path, body, timeout_s)
        except gymq.RolloutError as error:
            trouble = error.__context__  # of the last try
            if isinstance(trouble, Trouble) and trouble.policy is UNREACHABLE:
                raise Unreachable(error.message) from None
            raise

    def _decoded(self, url: str, body: bytes) -> Any:
        if url.endswith("/chat/completions"):
            with contextlib.suppress(msgspec.ValidationError):  # readers of the whole say better what is wrong
                return decode_completion(body)
        return super()._decoded(url, body)

    def _error(self, url: str, head: Head, body: bytes) -> Exception:
        if is_context_overflow(head.status, text := body.decode(errors="replace")):
            return ContextOverflow(self.excerpt(f"{url}: {head.status}: {text}"))
        return super()._error(url, head, body)
