"""Whole replies of engines that end requests when they get new weights, and which weights sampled them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from gymq.workers.models.openai_model.endpoint_model import failed
from gymq.workers.models.vllm_model.asked import Asked
from gymq.workers.models.vllm_model.generate import GENERATE
from gymq.workers.models.vllm_model.halves import continuation, joined, num_sampled, was_ended
from gymq.workers.models.vllm_model.sampler import Sampler
from gymq.workers.models.vllm_model.weight_versions import EngineVersions, Get, stretches

import gymq
from gymq.protocol.tokens import GENERATION_FIELD, VERSIONS_FIELD

MAX_PARTS = 30
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 2.0


class AskedWhole:
    """Asks one engine; a reply that it ended is continued, or asked for again.

    Attributes:
        versions: those that may have sampled the last reply, the first one first.
    """

    def __init__(self, asked: Asked, versions: EngineVersions, deadline: float, get: Get | None = None) -> None:
        """Prepare to ask.

        Args:
            deadline: on the event loop's clock, seconds.
            get: reads what the engine says of its weights; None: it is not asked.
        """
        self.versions: list[str] = []
        self._asked = asked
        self._known = versions
        self._deadline = deadline
        self._get = get
        self._stretches: list[list[Any]] | None = None

    @property
    def engine_name(self) -> str:
        return self._asked.engine_name

    async def sampler(self) -> Sampler:
        return await self._asked.sampler()

    async def tokenize(self, body: Mapping[str, Any]) -> dict[str, Any]:
        return await self._asked.tokenize(body)

    def excerpt(self, text: str) -> str:
        return self._asked.excerpt(text)

    async def post(self, path: str, body: Mapping[str, Any], num_known: int = 0) -> dict[str, Any]:
        """Return a whole reply; errors as in `Asked.post`."""
        return await self._whole(path, body, lambda body: self._asked.post(path, body, num_known))

    async def native(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer of a path of the engine's own, a whole reply where it samples; errors as in `post`."""
        if path != GENERATE:
            return await self._asked.native(path, body)
        return await self._whole(path, body, lambda body: self._asked.native(path, body))

    def put_versions_on(self, completion: dict[str, Any]) -> None:
        """Put the versions of its tokens on the first message of a reply that has several parts."""
        message = completion["choices"][0]["message"]
        num_tokens = len(message.get(GENERATION_FIELD) or ())
        if self._stretches and sum(count for _, count in self._stretches) == num_tokens:
            message.setdefault(VERSIONS_FIELD, self._stretches)

    async def _whole(
        self, path: str, body: Mapping[str, Any], ask: Callable[[Mapping[str, Any]], Awaitable[dict[str, Any]]]
    ) -> dict[str, Any]:
        kept: dict[str, Any] | None = None  # what was sampled so far
        parts: list[tuple[list[str], int]] = []
        for number in range(MAX_PARTS):
            before = await self._known.before(self.engine_name, self._get)
            answer = await ask(body)
            versions = await self._known.of_answer(self.engine_name, self._get, before, answer)
            is_ended = was_ended(answer)
            further = continuation(path, body, answer) if is_ended else None
            if is_ended and further is None:
                await self._pause(number)  # before what is left, or all of it, is asked for again
                continue
            parts.append((versions, num_sampled(path, answer) or 0 if is_ended or parts else 0))
            kept = answer if kept is None else joined(path, kept, answer)
            if further is None:
                self.versions = list(dict.fromkeys(version for versions, _ in parts for version in versions))
                self._stretches = stretches(parts) if len(parts) > 1 else None
                return kept
            body = further
            await self._pause(number)
        raise failed(f"{self.engine_name}: the engine ended the request {MAX_PARTS} times", retryable=True)

    async def _pause(self, number: int) -> None:
        """Give the engine time to get its weights.

        Raises:
            RolloutError: there is none left.
        """
        pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0**number) * random.uniform(0.5, 1.0)
        if asyncio.get_running_loop().time() + pause_s >= self._deadline:
            message = f"{self.engine_name}: the engine ended the request, and there is no time left to ask again"
            raise gymq.RolloutError(gymq.FailureClass.DEADLINE_EXCEEDED, message)
        await asyncio.sleep(pause_s)
