"""Serves one model instance on the bus."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from gymq import responses
from gymq.authoring import current_call
from gymq.bus import BusError
from gymq.bus.rpc.calls import Calls
from gymq.bus.rpc.loop_fairness import Turns
from gymq.bus.rpc.process_reports import ModelReport
from gymq.bus.rpc.replicas import Replicas
from gymq.bus.rpc.serving import Server, Service
from gymq.execution.conversations import Conversations
from gymq.execution.weights_follower import WeightsFollower
from gymq.failures import JudgeFailed, RolloutError, failing_as
from gymq.model import Model, ModelMemory, ModelRequest
from gymq.protocol import packing, subjects, tokens
from gymq.protocol.codec import Decoder, encode
from gymq.protocol.messages import (
    BlobRef,
    Call,
    FailureClass,
    Generate,
    Generated,
    GenerateNext,
    NeedsPrefix,
    PromptRead,
    ReadPrompt,
)
from gymq.protocol.replica_messages import Load

log = logging.getLogger("gymq.model")

T = TypeVar("T")

JUDGE_TIMEOUT_S = 600.0  # outside of a call, such as where a verifier starts

# Callers send further calls to replicas with less load; and those that wait here are divided by what they cost.
MOST_WAITING = 16_384

LOOK_EVERY_S = 0.25  # at the load
PUBLISH_EVERY_S = 1.0  # a load that does not change

LONG_REPLY = 4096  # tokens; packing and encoding so many takes some milliseconds

_decode = Decoder(Generate, ReadPrompt, BlobRef)
_decode_next = Decoder(Generate, GenerateNext, BlobRef)


class ModelRunner:
    """Answers `Generate` requests with a model, reports its load, and keeps it on the newest weights."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self._worker = ""
        self._services: list[Service] = []
        self._weights: WeightsFollower | None = None
        self._publishing: asyncio.Task[None] | None = None
        self._long_replies = Turns()
        self._failed_hooks: set[str] = set()  # that were warned about
        self._conversations = Conversations()

    async def serve(self, server: Server) -> None:
        """Load the newest weights, then take calls.

        Raises:
            UsageError: those that were pushed last cannot be loaded.
        """
        self._worker = server.worker
        if type(self.model).load_weights is not Model.load_weights:
            self._weights = WeightsFollower(server.bus, self.model)
            await self._weights.start()
        if type(self.model).share is not Model.share:
            await Replicas(server.bus, self.model.name, server.worker, self.model.share).start()
        limit = self.model.options.max_concurrency or self.model.max_concurrency
        for subject, decode, most_waiting in (
            (subjects.MODEL.of(self.model.name), _decode_next, MOST_WAITING),
            (subjects.JUDGE.of(self.model.name), _decode, 0),
        ):
            service = await server.serve(
                self.model.name,
                subject,
                decode,
                self.answer,
                group=subjects.MODEL_GROUP,
                limit=limit,
                most_waiting=most_waiting,
                failure_class=FailureClass.MODEL_FAILED,
            )
            self._services.append(service)
        self._publishing = asyncio.create_task(self._publish_load(server))

    async def stop(self) -> None:
        """Stop reporting load, so that callers choose other replicas, and take no new weights."""
        if self._publishing is not None:
            self._publishing.cancel()
        if self._weights is not None:
            await self._weights.stop()

    def stats(self) -> dict[str, Any]:
        stats: dict[str, Any] = {}
        if self.model.policy_version:
            stats["policy_version"] = self.model.policy_version
        if self._weights is not None:
            stats["weights"] = self._weights.stats()
        if (report := self._of_hook("what it waits for", self._report)) is not None:
            stats["model"] = report
        return stats

    def _report(self) -> ModelReport:
        report = ModelReport(dict(self.model.waits()), self.model.num_retries(), dict(self.model.oddities()))
        return msgspec.convert(msgspec.to_builtins(report), ModelReport)

    def _of_hook(self, what: str, read: Callable[[], T]) -> T | None:
        """Return what a hook of the author's returns; None, with one warning in all, if it fails."""
        try:
            return read()
        except Exception as error:
            if what not in self._failed_hooks:
                self._failed_hooks.add(what)
                log.warning("%s cannot report %s: %s: %s", self.model.name, what, type(error).__name__, error)
            return None

    async def _publish_load(self, server: Server) -> None:
        loop = asyncio.get_running_loop()
        subject = subjects.LOAD.of(self.model.name)
        published, published_at = b"", -math.inf
        while True:
            body = encode(self._load())
            if body != published or loop.time() - published_at >= PUBLISH_EVERY_S:
                published, published_at = body, loop.time()
                with contextlib.suppress(BusError):
                    await server.bus.publish(subject, body)
            await asyncio.sleep(LOOK_EVERY_S)

    def _load_of_engine(self) -> Load | None:
        load = self.model.load()
        if load is None:
            return None
        published = Load(
            worker=self._worker,
            running=load.running,
            waiting=load.waiting,
            kv_cache_use=min(1.0, max(0.0, float(load.kv_cache_use))),
            kv_cache_tokens=load.kv_cache_tokens,
            num_callers=self._services[0].num_callers if load.kv_cache_tokens else 0,
        )
        return msgspec.convert(msgspec.to_builtins(published), Load)

    def _load(self) -> Load:
        if (load := self._of_hook("its load", self._load_of_engine)) is not None:
            return load
        # Calls that arrive together start over a few rounds of the event loop; those wait for no slot.
        waiting = sum(service.held_back for service in self._services)
        running = sum(service.load for service in self._services) - waiting
        return Load(worker=self._worker, running=running, waiting=waiting)

    async def answer(
        self, _subject: str, request: Generate | GenerateNext | ReadPrompt
    ) -> Generated | NeedsPrefix | PromptRead:
        """Answer one model call.

        Raises:
            RolloutError: the model failed, or returned an invalid reply.
        """
        if isinstance(request, ReadPrompt):
            return await self._read(request)
        if isinstance(request, Generate):
            return await self._generate(request, ModelMemory())
        before = None
        if request.after is not None:
            before = self._conversations.find(request.session, request.after, request.num_items)
            if before is None:
                return NeedsPrefix(worker=self._worker)
        items = [*(before.items if before else ()), *request.items]
        memory = ModelMemory(before.kept if before else None)
        generated = await self._generate(
            Generate(
                rollout=request.rollout,
                timeout_s=request.timeout_s,
                params={**request.params, "input": items},
                session=request.session,
            ),
            memory,
        )
        output = generated.response.get("output")
        if not isinstance(output, list) or not _continues(request):
            return generated
        try:
            chain = before.chain if before else tokens.TokenChain(tokens.last_tokens(items))
            chain, output = chain.after(output)
        except ValueError as error:
            text = f"invalid response from model {self.model.name}: a prompt {error}"
            raise RolloutError(FailureClass.MODEL_FAILED, text) from error
        generated.response = {**generated.response, "output": output}
        new = [*request.items, *output]
        generated.state = self._conversations.keep(request.session, before, new, chain, memory.kept)
        return generated

    async def _generate(self, request: Generate, memory: ModelMemory) -> Generated:
        model_request = ModelRequest(request.params, request.session, request.rollout, _left_s(request), memory)
        version = self.model.policy_version
        response = await self._of_author(self.model.respond(model_request))
        try:
            if packing.count(response) < LONG_REPLY:
                packing.pack(response)
            else:
                # Many replies may come at once, as an engine's do that has batched them.
                async with self._long_replies.take():
                    packing.pack(response)
            after = self.model.policy_version
            versions = packing.label(response, model_request.versions or list(dict.fromkeys((version, after))))
            packing.note_sampling(response, model_request.sampling)
        except Exception as error:
            text = f"invalid response from model {self.model.name}: {error}"
            raise RolloutError(FailureClass.MODEL_FAILED, text) from error
        return Generated(response=response, worker=self._worker, policy_versions=versions if versions != [""] else [])

    async def _read(self, request: ReadPrompt) -> PromptRead:
        reading = self.model.read_prompt(request.prompt, request.num_log_probs, _left_s(request))
        answer = await self._of_author(reading)
        try:
            read = msgspec.convert(answer, PromptRead)
        except msgspec.ValidationError as error:
            text = f"invalid answer from model {self.model.name}: {error}"
            raise RolloutError(FailureClass.MODEL_FAILED, text) from error
        read.log_probs = read.log_probs[request.first :]
        return read

    async def _of_author(self, answer: Awaitable[dict[str, Any]]) -> dict[str, Any]:
        with failing_as(FailureClass.MODEL_FAILED, self.model.name):
            return await answer


def _left_s(request: Call) -> float:
    """Return the seconds that a call has left, which may have waited for a slot."""
    return min(request.timeout_s, current_call.get().deadline - asyncio.get_running_loop().time())


def _continues(request: GenerateNext) -> bool:
    """Return whether a conversation is likely to have another call: it has tools, or had a call already."""
    return (
        request.after is not None
        or bool(request.params.get("tools"))
        or any(map(responses.is_generated, request.items))
    )


class BusModels:
    """Lets a resources worker ask model workers: the judges."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def respond(self, model: str, params: dict[str, Any]) -> dict[str, Any]:
        """Return the model's reply.

        Raises:
            JudgeFailed: there is none.
        """
        call = current_call.get()
        try:
            params = responses.validate_params(params)
        except responses.InvalidRequest as error:
            raise JudgeFailed(f"the request to judge {model} does not fit: {error}") from None
        if isinstance(params["input"], str):
            params["input"] = [responses.user_message(params["input"])]
        left_s = call.deadline - asyncio.get_running_loop().time()
        timeout_s = left_s if math.isfinite(left_s) else JUDGE_TIMEOUT_S
        if timeout_s <= 0:
            raise JudgeFailed(f"there is no time left to ask judge {model}")
        request = Generate(rollout=call.rollout, timeout_s=timeout_s, params=params, session=call.rollout)
        try:
            generated = await self._calls.call(subjects.JUDGE.of(model), request)
            assert isinstance(generated, Generated)
            return responses.validate_response(generated.response)
        except RolloutError as error:
            raise JudgeFailed(f"judge {model}: {error.message}", curable=error.curable) from None
        except responses.InvalidReply as error:
            raise JudgeFailed(f"judge {model} did not return a Responses object: {error}") from None
