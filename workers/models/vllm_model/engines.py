"""All engines of one worker: each session stays with one of them, as long as that one is up."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from gymq.workers.models.openai_model.endpoint import Endpoint
from gymq.workers.models.openai_model.endpoint_model import failed
from gymq.workers.models.openai_model.overflow import ContextOverflow
from gymq.workers.models.openai_model.retry import UNREACHABLE, Trouble
from gymq.workers.models.vllm_model.asked import Exchange, readable
from gymq.workers.models.vllm_model.completion_body import decode_completion
from gymq.workers.models.vllm_model.examination import examine
from gymq.workers.models.vllm_model.options import VLLMOptions
from gymq.workers.models.vllm_model.ring import Ring
from gymq.workers.models.vllm_model.sampler import Sampler

import gymq

_API = "/v1"
_SHORT = 4096  # bytes of a reply that takes no time to decode as a whole


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
        self._options = options
        self._sampler: Sampler | None = None
        self._examining = asyncio.Lock()

    async def sampler(self, timeout_s: float) -> Sampler:
        """Return how this engine samples; the first call asks it.

        Raises:
            RolloutError: it does not answer.
        """
        async with self._examining:
            if self._sampler is None:

                async def post(path: str, body: Mapping[str, Any]) -> dict[str, Any]:
                    return await self.post(self.api + path, body, timeout_s)

                self._sampler = await examine(post, self._options, self.base_url)
            return self._sampler

    async def post(self, path: str, body: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        """Return the engine's answer.

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
        if len(body) > _SHORT and url.endswith("/chat/completions"):
            with contextlib.suppress(msgspec.ValidationError):  # readers of the whole say better what is wrong
                return decode_completion(body)
        return super()._decoded(url, body)


log = logging.getLogger("gymq.vllm_model")

MAX_ENGINES_PER_REQUEST = 3


@dataclass(frozen=True)
class AskedOverHTTP:
    """The engine that a request goes to, and until when it may take."""

    engine: Engine
    deadline: float  # on the event loop's clock, seconds

    @property
    def engine_name(self) -> str:
        return self.engine.base_url

    async def post(self, path: str, body: Mapping[str, Any], _num_known: int = 0) -> dict[str, Any]:
        """Return the answer to a request in one of OpenAI's dialects; errors as in `Engine.post`."""
        return await self.engine.post(self.engine.api + path, body, self._left_s())

    async def native(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer of a path of the engine's own; errors as in `Engine.post`."""
        return await self.engine.post(path, body, self._left_s())

    async def tokenize(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer of the engine's own `/tokenize`; errors as in `Endpoint.post`."""
        try:
            return await self.native("/tokenize", body)
        except ContextOverflow as overflow:
            # The engine has answered this very prompt, so the conversation is not too long.
            raise failed(str(overflow), retryable=True) from None

    async def sampler(self) -> Sampler:
        """Return how the engine samples; errors as in `Engine.post`."""
        return await self.engine.sampler(self._left_s())

    def excerpt(self, text: str) -> str:
        return self.engine.excerpt(text)

    def _left_s(self) -> float:
        return self.deadline - asyncio.get_running_loop().time()


class Engines:
    """Asks the engine of a session, or another one if that is down."""

    def __init__(self, options: VLLMOptions) -> None:
        self.engines = [Engine(url, options) for url in options.base_url]
        self._ring = Ring(len(self.engines))

    async def start(self) -> None:
        for engine in self.engines:
            await engine.start()

    async def stop(self) -> None:
        for engine in self.engines:
            await engine.stop()

    async def ask(self, session: str, timeout_s: float, exchange: Exchange) -> dict[str, Any]:
        """Return what `exchange` gives with the session's engine, without a session with the one that has least to do.

        An engine that cannot be reached is left alone for a while, and the request goes to the next.

        Raises:
            RolloutError: the engine refused or gave an unusable reply, or no engine could be reached.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        tried: set[int] = set()
        while True:
            loads = [engine.limit.in_flight for engine in self.engines]
            index = self._ring.choose(session, loop.time(), tried, loads)
            engine = self.engines[index]
            try:
                answer = await readable(exchange, AskedOverHTTP(engine, deadline))
            except Unreachable as error:
                self._ring.eject(index, loop.time())
                tried.add(index)
                log.warning("%s; other engines take its sessions for now", error.message)
                if len(tried) == min(len(self.engines), MAX_ENGINES_PER_REQUEST):
                    raise
            else:
                if self._ring.restore(index):
                    log.info("%s is back", engine.base_url)
                return answer
