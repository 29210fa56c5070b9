"""One engine over HTTP: how it is asked, what it says of its load, and when another should take its requests."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec
from gymq.workers.models.openai_model.endpoint import Endpoint
from gymq.workers.models.openai_model.endpoint_model import failed
from gymq.workers.models.openai_model.overflow import ContextOverflow
from gymq.workers.models.openai_model.retry import OVERLOADED, UNREACHABLE, Tries, Trouble
from gymq.workers.models.vllm_model.completion_body import decode_completion
from gymq.workers.models.vllm_model.engine_metrics import EngineReport, read_metrics
from gymq.workers.models.vllm_model.examination import examine
from gymq.workers.models.vllm_model.options import VLLMOptions
from gymq.workers.models.vllm_model.sampler import Sampler

import gymq

_API = "/v1"
_SHORT = 4096  # bytes of a reply that takes no time to decode as a whole
_METRICS_PATHS = ("/metrics", "/prometheus/metrics")
_MAX_METRICS_BYTES = 8 * 1024 * 1024
_REPORT_TIMEOUT_S = 5.0
_IS_PAUSED = "/is_paused"  # vLLM's, in its development mode; true as well while the engine sleeps
_MAX_IS_PAUSED_BYTES = 1000
_SEARCH_EVERY_S = 30.0  # at an engine that does not say it
_OK = 200
_LEAVE_AT = frozenset({UNREACHABLE, OVERLOADED})


class Unavailable(gymq.RolloutError):
    """An engine cannot be reached, or has too much to do; another may take the request without work being repeated.

    Attributes:
        is_gone: whether nothing answers there.
        pause_s: how long the engine wants to be left alone.
    """

    def __init__(self, message: str, *, is_gone: bool, pause_s: float = 0.0) -> None:
        super().__init__(gymq.FailureClass.MODEL_FAILED, message, retryable=True, curable=is_gone)
        self.is_gone = is_gone
        self.pause_s = pause_s


class _Pause(msgspec.Struct):
    is_paused: bool


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
        self.reported: EngineReport | None = None
        self.num_users = 0  # requests that may still ask it something
        self._metrics_paths: tuple[str, ...] = _METRICS_PATHS
        self._search_pause_at = 0.0  # on the event loop's clock
        self._options = options
        self._sampler: Sampler | None = None
        self._examining = asyncio.Lock()

    async def sampler(self, timeout_s: float, *, leaves: bool = False) -> Sampler:
        """Return how this engine samples; the first call asks it.

        Raises:
            RolloutError: it does not answer.
        """
        async with self._examining:
            if self._sampler is None:

                async def post(path: str, body: Mapping[str, Any]) -> dict[str, Any]:
                    return await self.ask(self.api + path, body, timeout_s, leaves=leaves)

                self._sampler = await examine(post, self._options, self.base_url)
            return self._sampler

    async def ask(
        self,
        path: str,
        body: Mapping[str, Any],
        timeout_s: float,
        *,
        headers: Mapping[str, str] | None = None,
        leaves: bool = False,
    ) -> dict[str, Any]:
        """Return the engine's answer.

        Args:
            leaves: whether another engine takes the request if this one cannot be reached or is overloaded.

        Raises:
            ContextOverflow: the prompt is too long, or leaves no room for a reply.
            Refused, RolloutError: see `Endpoint.post`.
            Unavailable: another engine may take the request.
        """
        try:
            return await self.post(path, body, timeout_s, headers=headers, tries=Tries(_LEAVE_AT if leaves else ()))
        except gymq.RolloutError as error:
            trouble = error.__context__  # of the last try
            if isinstance(trouble, Trouble) and trouble.policy in _LEAVE_AT:
                is_gone = trouble.policy is UNREACHABLE
                raise Unavailable(error.message, is_gone=is_gone, pause_s=trouble.retry_after_s) from None
            raise

    async def report(self) -> EngineReport | None:
        """Return the load of the engine; None if it does not report it.

        Raises:
            aiohttp.ClientError, OSError: it does not answer.
        """
        for path in self._metrics_paths:
            async with asyncio.timeout(_REPORT_TIMEOUT_S):
                status, body = await self.get(path, _MAX_METRICS_BYTES)
            report = read_metrics(body.decode(errors="replace")) if status == _OK else None
            if report is not None:
                self._metrics_paths = (path,)
                self.reported = replace(report, is_paused=await self._is_paused())
                return self.reported
        self.reported, self._metrics_paths = None, _METRICS_PATHS
        return None

    async def _is_paused(self) -> bool:
        """Return whether the engine says that it is paused; errors as in `report`."""
        now = asyncio.get_running_loop().time()
        if now < self._search_pause_at:
            return False
        async with asyncio.timeout(_REPORT_TIMEOUT_S):
            status, body = await self.get(_IS_PAUSED, _MAX_IS_PAUSED_BYTES)
        if status == _OK:
            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
                return msgspec.json.decode(body, type=_Pause).is_paused
        self._search_pause_at = now + _SEARCH_EVERY_S
        return False

    def _decoded(self, url: str, body: bytes) -> Any:
        if len(body) > _SHORT and url.endswith("/chat/completions"):
            with contextlib.suppress(msgspec.ValidationError):  # readers of the whole say better what is wrong
                return decode_completion(body)
        return super()._decoded(url, body)


@dataclass(frozen=True)
class AskedOverHTTP:
    """The engine that a request goes to, and until when it may take."""

    engine: Engine
    deadline: float  # on the event loop's clock, seconds
    headers: Mapping[str, str]
    leaves: bool  # whether another engine takes the request if this one is down

    @property
    def engine_name(self) -> str:
        return self.engine.base_url

    async def post(self, path: str, body: Mapping[str, Any], _num_known: int = 0) -> dict[str, Any]:
        """Return the answer to a request in one of OpenAI's dialects; errors as in `Engine.ask`."""
        return await self.native(self.engine.api + path, body)

    async def native(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer of a path of the engine's own; errors as in `Engine.ask`."""
        return await self.engine.ask(path, body, self._left_s(), headers=self.headers, leaves=self.leaves)

    async def tokenize(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer of the engine's own `/tokenize`; errors as in `Engine.ask`."""
        try:
            return await self.native("/tokenize", body)
        except ContextOverflow as overflow:
            # The engine has answered this very prompt, so the conversation is not too long.
            raise failed(str(overflow), retryable=True) from None

    async def sampler(self) -> Sampler:
        """Return how the engine samples; errors as in `Engine.ask`."""
        return await self.engine.sampler(self._left_s(), leaves=self.leaves)

    def excerpt(self, text: str) -> str:
        return self.engine.excerpt(text)

    def _left_s(self) -> float:
        return self.deadline - asyncio.get_running_loop().time()
