"""What all models that ask an endpoint have in common: answers that are kept, if that is wanted.

The base of openai_model, azure_openai_model, vllm_model and what builds on them.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pydantic

import gymq
from workers.models.openai_model.response_cache import DEFAULT_FOLDER, ResponseCache

log = logging.getLogger("gymq.endpoint_model")


class EndpointOptions(gymq.WorkerOptions):
    """Options of every model that asks an endpoint."""

    cache: bool | Path = False  # keep answers: a folder, or true for .gymq/responses in the current one
    cache_max_gb: pydantic.PositiveFloat = 10.0  # 10^9 bytes; a fuller folder gets no more


# What an answer does not depend on.
_NO_SETTINGS = frozenset(
    {*gymq.WorkerOptions.model_fields, "cache", "cache_max_gb", "max_concurrent_requests", "num_concurrent_requests"}
)


class EndpointModel(gymq.Model):
    """Answers from the cache, else by `ask`."""

    Options = EndpointOptions
    options: EndpointOptions

    _cache: ResponseCache | None = None

    async def ask(self, request: gymq.ModelRequest) -> dict[str, Any]:
        """The endpoint's answer; see `respond`."""
        raise NotImplementedError

    async def start(self) -> None:
        options = self.options
        if options.cache is False:
            return
        # Keys and header values are masked in it.
        settings = options.model_dump(mode="json", exclude=set(_NO_SETTINGS))
        self._cache = ResponseCache(
            DEFAULT_FOLDER if options.cache is True else options.cache,
            {"worker": type(self).__name__, **settings},
            max_bytes=int(options.cache_max_gb * 1e9),
        )
        await self._cache.start()

    async def stop(self) -> None:
        if self._cache is not None:
            log.info("%s: %d calls answered from the cache, %d asked", self.name, self._cache.hits, self._cache.misses)

    async def respond(self, request: gymq.ModelRequest) -> dict[str, Any]:
        if self._cache is None:
            return await self.ask(request)
        return await self._cache.answer(request, self.ask, policy_version=self.policy_version)
