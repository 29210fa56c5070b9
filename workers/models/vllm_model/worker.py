"""One or many running vLLM engines: chat templates, reasoning parsers and token ids for training.

`local_vllm_model` overrides `backend`, to answer with an engine of its own, and `genrm_model` overrides `body`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import msgspec
from gymq.workers.models.openai_model.endpoint import Endpoint
from gymq.workers.models.openai_model.endpoint_model import PROBE, EndpointModel, unsendable
from gymq.workers.models.openai_model.overflow import ContextOverflow
from gymq.workers.models.vllm_model.asked import Asked, Backend
from gymq.workers.models.vllm_model.audio import audio_urls
from gymq.workers.models.vllm_model.chat_params import known_chat_params
from gymq.workers.models.vllm_model.chat_template import ChatTemplate
from gymq.workers.models.vllm_model.completions import Prompt, as_chat_completion, completions_body, plain_prompt
from gymq.workers.models.vllm_model.engine import AskedOverHTTP
from gymq.workers.models.vllm_model.engines import Engines
from gymq.workers.models.vllm_model.exact_prompts import plain
from gymq.workers.models.vllm_model.generate import GENERATE, generate_body, offered_tools, parsed
from gymq.workers.models.vllm_model.options import VLLMOptions
from gymq.workers.models.vllm_model.prepare import (
    chat_body,
    ends_in_reasoning,
    has_media,
    placed,
    prepared,
    responses_body,
    tokenize_body,
)
from gymq.workers.models.vllm_model.prompts import prompt_ids, read_prompt
from gymq.workers.models.vllm_model.reply import empty_completion, put_reasoning_into_text
from gymq.workers.models.vllm_model.sampled_tokens import read_tokenized, read_tokens, warn_of_other_prompt
from gymq.workers.models.vllm_model.weight_versions import EngineVersions, Get
from gymq.workers.models.vllm_model.whole import AskedWhole

import gymq
from gymq.ext.conversion.from_chat import chat_to_response, check_tokens, readable_completion
from gymq.ext.conversion.mending import readable_response
from gymq.ext.conversion.to_chat import responses_to_chat
from gymq.protocol.sampling import mismatch, recorded
from gymq.responses import InvalidRequest, ResponsesError, validate_params
from gymq.responses.errors import warn_once


class WeightsElsewhere(gymq.GymqError):
    """Weights came for engines that only someone else can give them."""


AnswerOf = Callable[[dict[str, Any]], dict[str, Any]]  # from a chat completion to the answer in the caller's dialect


@dataclass(frozen=True)
class _Converted:
    """The input of a call as the messages of a chat; neither is changed."""

    num_items: int
    instructions: str | None
    messages: list[dict[str, Any]]
    settings: int  # what else the prompt depends on, such as the tools, as `_hash_of_settings` gives it


_NOTHING = _Converted(0, None, [], 0)
_NO_SETTINGS = frozenset({"messages", "max_tokens"})


class VLLMModel(EndpointModel):
    """Sends each request to one of the engines; all requests of a rollout to the same."""

    Options: type[VLLMOptions] = VLLMOptions
    is_announced = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._versions = EngineVersions()
        self._following: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await super().start()
        self._template = None if self.options.tokenizer is None else ChatTemplate(self.options.tokenizer)
        self._backend = self.backend()
        await self._backend.start()
        if isinstance(self._backend, Engines):
            await self._versions.look(self._readers())
            self._following = asyncio.create_task(self._versions.follow(self._readers))

    async def stop(self) -> None:
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
        await self._backend.stop()
        await super().stop()

    async def probe(self, timeout_s: float) -> None:
        options = self.options
        if options.cache is not False:
            return  # its answers may all be there, and the engines gone
        if options.is_responses_native:
            path, body = "/responses", dict(PROBE)
        elif options.use_completions_api:
            path, body = "/completions", {"prompt": "Hi", "max_tokens": 1}
        else:
            path, body = "/chat/completions", {"messages": PROBE["input"], "max_tokens": 1}
        backend = self.backend()
        await backend.start()
        try:
            await backend.ask("", timeout_s, lambda asked: asked.post(path, {**body, "model": options.model}))
        except ContextOverflow:
            pass  # it answers
        finally:
            await backend.stop()

    def endpoints(self) -> Iterable[Endpoint]:
        return self._backend.engines if isinstance(self._backend, Engines) else ()

    def load(self) -> gymq.ModelLoad | None:
        return self._backend.load() if isinstance(self._backend, Engines) else None

    def waits(self) -> Counter[str]:
        return super().waits() + (self._backend.waits() if isinstance(self._backend, Engines) else Counter())

    def share(self, index: int, of: int) -> None:
        if isinstance(self._backend, Engines):
            self._backend.set_replicas(of)
        super().share(index, of)

    def set_limit(self, most: int) -> None:
        if isinstance(self._backend, Engines):
            self._backend.set_limit(most)

    def _readers(self) -> dict[str, Get]:
        return {engine.base_url: engine.get for engine in self.endpoints()}

    def backend(self) -> Backend:
        """Return the engines that answer."""
        return Engines(self.options)

    async def load_weights(self, update: gymq.WeightsUpdate) -> None:
        """Take the version of weights that the engines have, and which engines these are.

        Raises:
            WeightsElsewhere: it comes with weights.
            ValueError: a URL of an engine cannot be one.
        """
        if not update.is_announced:
            raise WeightsElsewhere(
                "engines at `base_url` are given weights where they run; then `gymq weights announce` tells the version"
            )
        if update.engines and isinstance(self._backend, Engines):
            await self._backend.replace(update.engines)
        self._versions.announced = update.policy_version

    def told_versions(self) -> list[str]:
        return self._versions.told

    async def ask(self, request: gymq.ModelRequest) -> dict[str, Any]:
        options = self.options
        try:
            if options.is_responses_native:
                params = validate_params(request.params)
                body = responses_body(params, options)
            else:
                chat, params, num_known = self._chat(request)
        except ResponsesError as error:
            raise unsendable(error) from None
        if options.is_responses_native:
            return await self._pass_through(request, body, params)
        return await self._complete(request, chat, lambda completion: self._response(completion, params), num_known)

    def _chat(self, request: gymq.ModelRequest) -> tuple[dict[str, Any], dict[str, Any], int]:
        """Return a request as a chat with prepared messages, its checked parameters, and how many messages are known.

        Only the items that came after the call before are checked and converted.

        Raises:
            ResponsesError: it is not a request, or a chat cannot express it.
        """
        earlier = request.memory.before
        converted = None
        if isinstance(earlier, _Converted) and earlier.instructions == request.params.get("instructions"):
            with contextlib.suppress(ResponsesError):  # the whole says better where it is wrong
                converted = self._converted(request.params, earlier)
        chat, params = converted or self._converted(request.params, _NOTHING)
        messages, settings = chat["messages"], _hash_of_settings(chat)
        if not messages:
            raise InvalidRequest("input", "no item of it is a message, and a chat needs one")
        if isinstance(params["input"], list) and messages[-1]["role"] != "assistant":  # else the reply belongs to it
            num_items = len(request.params["input"])
            request.memory.kept = _Converted(num_items, params.get("instructions"), messages, settings)
        # With other tools the prompt of the call before says something else of them.
        return chat, params, len(earlier.messages) if converted and settings == earlier.settings else 0

    def _converted(self, params: dict[str, Any], earlier: _Converted) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return parameters as a chat, and checked; of the items only those after the earlier ones."""
        if earlier.num_items:
            # The instructions stand in front of the first message.
            params = {**params, "input": params["input"][earlier.num_items :], "instructions": None}
        params = validate_params(params)
        chat = responses_to_chat(params, token_ids=self.options.return_token_id_information)
        chat["messages"] = [*earlier.messages, *prepared(chat["messages"], self.options)]
        return chat, {**params, "instructions": earlier.instructions} if earlier.num_items else params

    async def respond_chat(self, request: gymq.ModelRequest) -> dict[str, Any]:
        """Answer a Chat Completions request, in `request.params`, with a chat completion.

        Reasoning stands in think tags in front of the text, token members on the message.

        Raises:
            RolloutError: see `respond`.
        """
        try:
            chat = known_chat_params(request.params)
        except ResponsesError as error:
            raise unsendable(error) from None
        cut = empty_completion(self.options.model, "length")
        return await self.answer_or_cut(replace(request, params=chat), "messages", self._ask_chat, lambda _: cut)

    async def _ask_chat(self, request: gymq.ModelRequest) -> dict[str, Any]:
        chat = {**request.params, "messages": prepared(request.params["messages"], self.options)}
        return await self._complete(request, chat, lambda completion: completion)

    async def _complete(
        self, request: gymq.ModelRequest, chat: dict[str, Any], answer_of: AnswerOf, num_known: int = 0
    ) -> dict[str, Any]:
        """Return the answer to a chat request, made of its chat completion."""
        options = self.options
        try:
            body = self.body(chat, await audio_urls(chat.get("metadata"), options.audio_root))
            if body["messages"] is not chat["messages"]:  # the call has messages that the next one will not have
                num_known, request.memory.kept = 0, None
            prompt = await self._prompt(body, num_known)
        except ResponsesError as error:
            raise unsendable(error) from None
        if not options.sequential_reasoning_allowed and ends_in_reasoning(body, options):
            return answer_of(empty_completion(options.model, "content_filter"))

        deadline = asyncio.get_running_loop().time() + request.timeout_s

        async def exchange(engine: Asked) -> dict[str, Any]:
            asked = self._whole(engine, deadline)
            sampler = await asked.sampler() if options.return_token_id_information else None
            filled = {**placed(options), **({} if sampler is None else sampler.sent), **body}
            try:
                completion, sent = await self._asked(asked, filled, prompt, num_known)
            except ContextOverflow:
                return answer_of(empty_completion(options.model, "length"))
            self._note_versions(request, asked)
            completion = readable_completion(completion)
            put_reasoning_into_text(completion, uses_reasoning_parser=options.uses_reasoning_parser)
            if sampler is not None:
                tokens = read_tokens(completion)
                if isinstance(prompt, list):
                    tokens.check_prompt(prompt, is_named=not (options.use_completions_api or options.use_generate_api))
                elif tokens.prompt_token_ids is None:
                    tokens.prompt_token_ids = await prompt_ids(asked, sent)
                    if not has_media(body["messages"]):  # an image is one token for `/tokenize`
                        warn_of_other_prompt(completion, len(tokens.prompt_token_ids))
                request.sampling.update(recorded({**sampler.implied, **_given(body)}, sampler.log_probs))
                if mismatch(request.sampling):
                    warn_once(
                        f"the log probs of {asked.engine_name} are those of temperature 1, whatever it samples with: "
                        "start it with --logprobs-mode processed_logprobs"
                    )
                tokens.put_on(completion)
                asked.put_versions_on(completion)
                check_tokens(completion["choices"][0]["message"])
            return answer_of(completion)

        return await self._backend.ask(_affinity(request), request.timeout_s, exchange)

    def body(self, chat: dict[str, Any], audio: list[str]) -> dict[str, Any]:
        """Return what an engine is sent for a chat request; a worker with messages of its own overrides it.

        Args:
            audio: data URIs of what the last user says.

        Raises:
            ResponsesError: it cannot be said.
        """
        return chat_body(chat, self.options, audio)

    async def _prompt(self, body: dict[str, Any], num_known: int) -> Prompt | None:
        """Return what the engine is to continue; None if it has to make it of the messages."""
        options = self.options
        if options.use_completions_api and not options.render_chat_template:
            return plain_prompt(body)
        if self._template is None:
            return None
        if has_media(body["messages"]):
            if options.use_completions_api or options.use_generate_api:
                raise InvalidRequest("messages", "only a chat of the engine has a place for media")
            return None
        return await self._template.prompt(body, num_known)

    async def _asked(
        self, asked: Asked, body: dict[str, Any], prompt: Prompt | None, num_known: int
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the engine's reply to a chat body as a chat completion, and the body that it was sent."""
        options = self.options
        if options.use_completions_api:
            return await self._continue(asked, body, prompt)
        if not isinstance(prompt, list):
            return await asked.post("/chat/completions", body, num_known), body
        if not options.use_generate_api:
            sent = options.form.with_prompt({**body, "messages": plain(body["messages"])}, prompt)
            return await asked.post("/chat/completions", sent), sent
        sent = generate_body(body, prompt)
        completion = await parsed(
            await asked.native(GENERATE, sent),
            asked.native,
            model=options.model,
            tools=offered_tools(body),
            reasoning_parser=options.reasoning_parser,
            tool_call_parser=options.tool_call_parser,
        )
        return completion, sent

    async def _continue(
        self, asked: Asked, body: dict[str, Any], prompt: Prompt | None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return what a base model makes of a chat body, as a chat completion, and the body that it was sent."""
        form = self.options.form
        if prompt is None:
            prompt = read_tokenized(await asked.tokenize(tokenize_body(body)))
        sent = completions_body(body, prompt, form.num_log_probs if self.options.return_token_id_information else None)
        completion = as_chat_completion(await asked.post("/completions", sent))
        if self._template is not None and not form.has_text and self.options.return_token_id_information:
            sampled = read_tokens(completion).generation_token_ids
            completion["choices"][0]["message"]["content"] = self._template.text(sampled)
        return completion, sent

    async def read_prompt(
        self, prompt: list[int] | dict[str, Any], num_log_probs: int, timeout_s: float
    ) -> dict[str, Any]:
        ask = partial(read_prompt, model=self.options.model, prompt=prompt, num_log_probs=num_log_probs)
        return await self._backend.ask("", timeout_s, ask)

    async def _pass_through(
        self, request: gymq.ModelRequest, body: dict[str, Any], params: dict[str, Any]
    ) -> dict[str, Any]:
        deadline = asyncio.get_running_loop().time() + request.timeout_s

        async def exchange(engine: Asked) -> dict[str, Any]:
            asked = self._whole(engine, deadline)
            try:
                answer = await asked.post("/responses", {**placed(self.options), **body})
            except ContextOverflow:
                return self._response(empty_completion(self.options.model, "length"), params)
            self._note_versions(request, asked)
            return readable_response(answer, params, self.options.model)

        return await self._backend.ask(_affinity(request), request.timeout_s, exchange)

    def _whole(self, asked: Asked, deadline: float) -> AskedWhole:
        get = asked.engine.get if isinstance(asked, AskedOverHTTP) else None
        return AskedWhole(asked, self._versions, deadline, get)

    def _note_versions(self, request: gymq.ModelRequest, asked: AskedWhole) -> None:
        if self.is_announced:
            request.versions[:] = asked.versions

    def _response(self, completion: dict[str, Any], params: dict[str, Any]) -> dict[str, Any]:
        options = self.options
        return chat_to_response(
            completion,
            params,
            model=options.model,
            split_reasoning=options.uses_reasoning_parser,
            token_ids=options.return_token_id_information,
        )


def _given(body: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that have a value, the length under one name."""
    given = {name: value for name, value in body.items() if value is not None}
    if "max_completion_tokens" in given:
        given["max_tokens"] = given["max_completion_tokens"]
    return given


def _hash_of_settings(chat: dict[str, Any]) -> int:
    return hash(msgspec.json.encode({name: value for name, value in chat.items() if name not in _NO_SETTINGS}))


def _affinity(request: gymq.ModelRequest) -> str:
    """Return what decides about the engine: the session, whose attempts share a prompt and so should share a cache."""
    return request.rollout if request.session.startswith(f"{request.rollout}/") else request.session
