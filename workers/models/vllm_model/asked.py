"""The target of a request, a remote engine or one in this process, and its errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from gymq.workers.models.openai_model.endpoint_model import failed
from gymq.workers.models.openai_model.refusal import Refused
from gymq.workers.models.vllm_model.reply import UnexpectedReasoning
from gymq.workers.models.vllm_model.sampler import Sampler

from gymq.responses import InvalidReply


class Asked(Protocol):
    """The engine that answers one request."""

    @property
    def engine_name(self) -> str:
        """The engine in messages for people."""

    async def post(self, path: str, body: Mapping[str, Any], num_known: int = 0) -> dict[str, Any]:
        """Return the answer to a request in one of OpenAI's dialects.

        Args:
            num_known: leading messages of a chat that are those of an earlier call, whose reply is the next one.

        Raises:
            ContextOverflow: the prompt is too long, or leaves no room for a reply.
            Refused: the engine will not do it.
            RolloutError: no answer.
        """

    async def sampler(self) -> Sampler:
        """Return how the engine samples; errors as in `post`."""

    async def native(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer of a path of the engine's own; errors as in `post`."""

    async def tokenize(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The answer of the engine's own `/tokenize`; errors as in `post`."""

    def excerpt(self, text: str) -> str:
        """A sensible length of the engine's text, without secrets."""


Exchange = Callable[[Asked], Awaitable[dict[str, Any]]]


class Backend(Protocol):
    """The engines of one worker."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def ask(self, session: str, timeout_s: float, exchange: Exchange) -> dict[str, Any]:
        """What `exchange` gives with the session's engine.

        Raises:
            RolloutError: the engine refused or gave an unusable reply, or no engine could be reached.
        """


async def readable(exchange: Exchange, asked: Asked) -> dict[str, Any]:
    """Exchange messages with one engine; errors name the engine."""
    try:
        return await exchange(asked)
    except Refused as refused:
        raise failed(str(refused), retryable=refused.retryable, curable=refused.curable) from None
    except UnexpectedReasoning as error:
        raise failed(f"{asked.engine_name}: {error}", retryable=False) from None
    except InvalidReply as error:
        raise failed(asked.excerpt(f"{asked.engine_name}: unusable reply: {error}"), retryable=True) from None
