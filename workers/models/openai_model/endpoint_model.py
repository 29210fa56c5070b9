"""What all models that ask an endpoint have in common: answers that are kept, and a limit that replicas divide.

The base of openai_model, azure_openai_model, vllm_model and what builds on them.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import pydantic
from gymq.workers.models.openai_model.endpoint import Endpoint
from gymq.workers.models.openai_model.oddities import Oddities
from gymq.workers.models.openai_model.refusal import Refused
from gymq.workers.models.openai_model.response_cache import DEFAULT_FOLDER, ResponseCache

import gymq
from gymq.ext.conversion.notes import note, noting
from gymq.model import ModelMemory
from gymq.protocol.subjects import RolloutId
from gymq.responses import ResponsesError, split_at_first_generated
from gymq.responses.items import new_id

log = logging.getLogger("gymq.endpoint_model")


# The smallest request that all endpoints take: OpenAI asks for 16 tokens at least.
PROBE: Mapping[str, Any] = {"input": [{"role": "user", "content": "Hi"}], "max_output_tokens": 16}


def failed(message: str, *, retryable: bool, curable: bool = False) -> gymq.RolloutError:
    """Return a failure of the model."""
    return gymq.RolloutError(gymq.FailureClass.MODEL_FAILED, message, retryable=retryable, curable=curable)


def unsendable(error: ResponsesError) -> gymq.InvalidTask:
    """Return the failure of a request that an endpoint cannot be sent."""
    return gymq.InvalidTask(f"the request cannot be sent: {error}")


def cut_before_first_token(response: Mapping[str, Any]) -> dict[str, Any]:
    """Return a Responses object as that of a conversation that cannot be continued: cut short, and without usage."""
    message = {
        "type": "message",
        "id": new_id("msg"),
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "", "annotations": []}],
    }
    cut = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}, "usage": None}
    return {**response, **cut, "output": [message]}


class EndpointOptions(gymq.WorkerOptions):
    """Options of every model that asks an endpoint."""

    cache: bool | Path = False  # keep answers: a folder, or true for .gymq/responses in the current one
    cache_max_gb: pydantic.PositiveFloat = 10.0  # 10^9 bytes; a fuller folder gets no more
    max_concurrent_requests: pydantic.PositiveInt | None = None  # on their way to one endpoint at a time

    @property
    def request_limit(self) -> int | None:
        """Requests on their way to one endpoint at a time, from all replicas together; None: no limit."""
        return self.max_concurrent_requests


Ask = Callable[[gymq.ModelRequest], Awaitable[dict[str, Any]]]
Cut = Callable[[dict[str, Any]], dict[str, Any]]

# What an answer does not depend on.
_NO_SETTINGS = frozenset(
    {
        *gymq.WorkerOptions.model_fields,
        "cache",
        "cache_max_gb",
        "max_concurrent_requests",
        "num_concurrent_requests",
        "session_affinity_header",
    }
)

_SCRIPT = frozenset({"simulated_solution", "simulated_mistake"})  # metadata for `simulated_model`


class EndpointModel(gymq.Model):
    """Answers from the cache, else by `ask`."""

    Options: type[EndpointOptions] = EndpointOptions
    is_client = True
    max_concurrency = 16_384  # what waits for an endpoint costs little; `max_concurrent_requests` spares the endpoint

    @cached_property
    def _oddities(self) -> Oddities:
        return Oddities(self.name)

    _cache: ResponseCache | None = None
    _has_part = True

    async def ask(self, request: gymq.ModelRequest) -> dict[str, Any]:
        """The endpoint's answer; see `respond`."""
        raise NotImplementedError

    def endpoints(self) -> Iterable[Endpoint]:
        """Return what is asked, once it has started."""
        return ()

    def waits(self) -> Counter[str]:
        return sum((endpoint.waits() for endpoint in self.endpoints()), Counter())

    def num_retries(self) -> int:
        return sum(endpoint.num_retries for endpoint in self.endpoints())

    def oddities(self) -> Counter[str]:
        return self._oddities.counts

    def share(self, index: int, of: int) -> None:
        """Take this replica's part of the limit that all replicas keep together.

        Args:
            index: which of the replicas this is, from 0.
            of: how many live; 0: not known yet, and nothing is sent.
        """
        whole = self.options.request_limit
        if whole is None:
            return
        part = whole // of + (index < whole % of) if of else 0
        self._has_part = part > 0 or of == 0
        self.set_limit(part)

    def set_limit(self, most: int) -> None:
        """Have at most so many requests on their way to one endpoint at a time."""
        for endpoint in self.endpoints():
            endpoint.limit.set_most(most)

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
        request = replace(request, params=_without_script(request.params))
        if self._cache is None:
            return await self._ask_in_turn(request)
        return await self._cache.answer(request, self._ask_in_turn, policy_version=self.policy_version)

    async def _ask_in_turn(self, request: gymq.ModelRequest) -> dict[str, Any]:
        if not self._has_part:
            message = (
                f"{self.name}: more replicas than the {self.options.request_limit} requests at a time; others send"
            )
            raise gymq.RolloutError(gymq.FailureClass.SATURATED, message)
        return await self.answer_or_cut(request, "input", self.ask, cut_before_first_token)

    async def answer_or_cut(self, request: gymq.ModelRequest, items: str, ask: Ask, cut: Cut) -> dict[str, Any]:
        """Return the answer to a request, cut if the endpoint refuses what a policy wrote in it and nothing else.

        Args:
            items: the parameter that holds the conversation.
            ask: asks the endpoint.
            cut: makes of the answer to the conversation's beginning one that says nothing and is cut short.
        """
        started = time.monotonic()
        noting.set(partial(self._oddities.note, RolloutId.run_of(request.rollout)))
        try:
            return await ask(request)
        except gymq.RolloutError as error:
            is_refused = isinstance(error.__context__, Refused) and not error.retryable and not error.curable
            if not is_refused:
                raise
            prompt, history = split_at_first_generated(request.params[items])
            if not history:
                raise
            # The settings stay the same, so that one of them is not mistaken for a fault of the policy.
            params = {**request.params, items: prompt or PROBE["input"]}
            left_s = request.timeout_s - (time.monotonic() - started)
            try:
                answer = await ask(replace(request, params=params, timeout_s=left_s, memory=ModelMemory()))
            except gymq.RolloutError:
                raise error from None
            note("rollouts that are cut because the endpoint refuses their history", error.message)
            return cut(answer)


def _without_script(params: dict[str, Any]) -> dict[str, Any]:
    """Leave out what only `simulated_model` reads: it is the answer itself, and longer than some endpoints allow."""
    metadata = params.get("metadata")
    if not isinstance(metadata, dict) or metadata.keys().isdisjoint(_SCRIPT):
        return params
    kept = {name: value for name, value in metadata.items() if name not in _SCRIPT}
    if kept:
        return {**params, "metadata": kept}
    return {name: value for name, value in params.items() if name != "metadata"}
