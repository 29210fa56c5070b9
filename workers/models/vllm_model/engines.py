"""All engines of one worker: each session stays with one of them, as long as that one is up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gymq.workers.models.vllm_model.asked import ContextOverflow, Exchange, failed, readable
from gymq.workers.models.vllm_model.engine import Engine, Unreachable
from gymq.workers.models.vllm_model.options import VLLMOptions
from gymq.workers.models.vllm_model.ring import Ring

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
        """The answer to a request in one of OpenAI's dialects; errors as in `Engine.post`."""
        return await self.engine.post(self.engine.api + path, body, self._left_s())

    async def tokenize(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The answer of the engine's own `/tokenize`; errors as in `Endpoint.post`."""
        try:
            return await self.engine.post("/tokenize", body, self._left_s())
        except ContextOverflow as overflow:
            # The engine has answered this very prompt, so the conversation is not too long.
            raise failed(str(overflow), retryable=True) from None

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
        """What `exchange` gives with the session's engine, without a session with the one that has least to do.

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
