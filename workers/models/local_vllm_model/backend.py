"""Asks the engine of this worker, and ends the process when the engine can answer no more."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
from gymq.workers.models.openai_model.endpoint import MAX_EXCERPT
from gymq.workers.models.openai_model.overflow import ContextOverflow, is_context_overflow
from gymq.workers.models.openai_model.refusal import Refused
from gymq.workers.models.vllm_model.asked import Exchange, readable
from gymq.workers.models.vllm_model.sampler import Sampler

import gymq
from gymq.protocol.decoding import UNDECODABLE

log = logging.getLogger("gymq.local_vllm_model")

WATCH_S = 0.5  # between two checks of the engine's health

_OK = 200
_BUSY = 503
_PROCESS_FAILED = 500


class AnyEngine(Protocol):
    """An engine of this process, or its counterpart elsewhere."""

    @property
    def is_broken(self) -> bool: ...

    @property
    def max_num_seqs(self) -> int: ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def post(
        self, path: str, body: Mapping[str, Any], session: str, num_known: int = 0
    ) -> tuple[int, bytes | dict[str, Any]]: ...

    async def load_weights(self, update: gymq.WeightsUpdate) -> None: ...

    def load(self) -> gymq.ModelLoad: ...


@dataclass(frozen=True)
class AskedHere:
    """A request to the engine of this worker."""

    engine: AnyEngine
    engine_name: str
    session: str
    known: Sampler

    async def sampler(self) -> Sampler:
        return self.known

    async def post(self, path: str, body: Mapping[str, Any], num_known: int = 0) -> dict[str, Any]:
        return await self._answer(f"/v1{path}", body, num_known)

    async def native(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return await self._answer(path, body)

    async def tokenize(self, body: Mapping[str, Any]) -> dict[str, Any]:
        return await self.native("/tokenize", body)

    async def _answer(self, path: str, body: Mapping[str, Any], num_known: int = 0) -> dict[str, Any]:
        if self.engine.is_broken:
            # The call has not run, so it may wait until the worker is back.
            raise gymq.RolloutError(gymq.FailureClass.NO_WORKER, f"{self.engine_name}: the engine is being replaced")
        status, raw = await self.engine.post(path, body, self.session, num_known)
        if isinstance(raw, dict):
            return raw
        if status == _OK:
            answer: dict[str, Any] = msgspec.json.decode(raw)
            return answer
        text = raw.decode(errors="replace")
        if is_context_overflow(status, "", text):
            raise ContextOverflow(self.excerpt(text))
        reason = self.excerpt(_reason(raw) or text)
        message = f"{self.engine_name}: {status}: {reason}"
        if self.engine.is_broken:
            raise gymq.RolloutError(gymq.FailureClass.WORKER_LOST, f"{self.engine_name}: the engine died")
        if status == _BUSY:
            raise gymq.RolloutError(gymq.FailureClass.SATURATED, message)
        raise Refused(message, reason=reason, code=str(status), retryable=status >= _PROCESS_FAILED)

    def excerpt(self, text: str) -> str:
        text = " ".join(text.split())
        return text if len(text) <= MAX_EXCERPT else f"{text[:MAX_EXCERPT]}..."


class LocalBackend:
    """The one engine of this worker."""

    def __init__(self, engine: AnyEngine, name: str, sampler: Sampler) -> None:
        self.engine = engine
        self._name = name
        self._sampler = sampler

    async def start(self) -> None:
        await self.engine.start()
        self._watching = asyncio.create_task(self._watch())

    async def stop(self) -> None:
        self._watching.cancel()
        await self.engine.stop()

    async def ask(self, session: str, timeout_s: float, exchange: Exchange) -> dict[str, Any]:
        try:
            async with asyncio.timeout(timeout_s):
                return await readable(exchange, AskedHere(self.engine, self._name, session, self._sampler))
        except TimeoutError:
            message = f"{self._name}: no answer within {timeout_s:.3g} s"
            raise gymq.RolloutError(gymq.FailureClass.DEADLINE_EXCEEDED, message) from None

    async def _watch(self) -> None:
        """An engine that broke does not recover: end this process in peace, so that it is started again."""
        while not self.engine.is_broken:  # noqa: ASYNC110
            await asyncio.sleep(WATCH_S)
        log.error("%s: the engine died; this process ends, to be started again", self._name)
        os.kill(os.getpid(), signal.SIGTERM)


def _reason(raw: bytes) -> str:
    try:
        answer = msgspec.json.decode(raw)
        return str(answer["error"]["message"])
    except (LookupError, TypeError, *UNDECODABLE):
        return ""
