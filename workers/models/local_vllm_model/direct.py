"""Asks vLLM's engine for chats by its own calls: no web application, and no check of a setting that was checked before.

What a request means is decided by vLLM's own classes: they check its settings, render its messages and parse the
reply. Requests of another kind, and those that vLLM refuses, are left to its application.
"""

from __future__ import annotations

import asyncio
import copy
import time
import uuid
from array import array
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import msgspec
from gymq.workers.models.local_vllm_model.vllm_versions import find
from gymq.workers.models.local_vllm_model.weight_versions import ABORT, stretches
from gymq.workers.models.vllm_model.continuation import Shapes
from gymq.workers.models.vllm_model.exact_prompts import CannotRender

from gymq.protocol.tokens import VERSIONS_FIELD

MAX_SETTINGS = 256
"""Settings of requests that are kept; those used least recently are checked again."""

LONG_REPLY = 1024
"""Tokens; the text of more is decoded in a thread."""

LONG_CHAT = 16_384
"""Characters; more are rendered in vLLM's threads."""

_CONTEXT = 64  # tokens of the prompt that the text of a reply may depend on
_LOWEST_LOG_PROB = -9999.0  # as vLLM says minus infinity

ENDED: dict[str, Any] = {"choices": [{"finish_reason": ABORT}]}
"""Answer to a request that new weights have ended. Of a part of a reply with a tool call vLLM says `tool_calls`."""

_PER_REQUEST = frozenset({"messages", "max_tokens", "max_completion_tokens", "priority", "seed"})
_UNUSED = frozenset({"metadata", "model", "user", "store", "service_tier", "kv_transfer_params"})
_SETTINGS = frozenset(
    {
        "allowed_token_ids",
        "bad_words",
        "chat_template_kwargs",
        "frequency_penalty",
        "ignore_eos",
        "include_stop_str_in_output",
        "logit_bias",
        "logprobs",
        "min_p",
        "min_tokens",
        "n",
        "parallel_tool_calls",
        "presence_penalty",
        "reasoning_effort",
        "repetition_penalty",
        "response_format",
        "return_token_ids",
        "return_tokens_as_token_ids",
        "skip_special_tokens",
        "spaces_between_special_tokens",
        "stop",
        "stop_token_ids",
        "structured_outputs",
        "temperature",
        "thinking_token_budget",
        "tool_choice",
        "tools",
        "top_k",
        "top_logprobs",
        "top_p",
    }
)
_TOOL_CHOICES = (None, "auto", "none")
_INT64 = range(-(2**63), 2**63)


class NotDirect(CannotRender):
    """The application has to answer a request."""


@dataclass
class Settings:
    """All of a request but its messages, its length and its seed, as vLLM understands it."""

    request: Any  # vLLM's ChatCompletionRequest; its only message is a placeholder
    sampling: Any  # vLLM's SamplingParams
    template: Any  # vLLM's ChatParams
    limits: Any  # vLLM's TokenizeParams
    parser_kwargs: dict[str, Any]
    shapes: Shapes = field(default_factory=Shapes)  # of conversations with this template and these tools


class DirectChat:
    """The engine behind an application, asked without it."""

    def __init__(self, llm: Any, state: Any) -> None:
        """
        Args:
            llm: vLLM's AsyncLLM.
            state: of the application that serves it.

        Raises:
            NotDirect: this version of vLLM or this kind of model can only be asked through the application.
        """
        try:
            self._serving = state.openai_serving_chat
            self._renderer = self._serving.online_renderer
            self._request_class = find("ChatCompletionRequest")
            self._max_tokens = find("get_max_tokens")
            self._tokens_input = find("tokens_input")
            self._detokenizer = find("IncrementalDetokenizer")
            is_special = self._renderer.use_harmony or llm.model_config.enable_prompt_embeds
            is_special = is_special or find("is_mistral_tokenizer")(self._renderer.renderer.tokenizer)
        except (ImportError, AttributeError) as error:
            raise NotDirect(str(error)) from None
        if is_special:
            raise NotDirect("the messages of this kind of model are rendered by rules of its own")
        self._llm = llm
        self._tokenizer = llm.get_tokenizer()
        self._settings: OrderedDict[bytes, Settings] = OrderedDict()

    async def settings(self, body: Mapping[str, Any]) -> Settings:
        """Return the settings of a chat request.

        Raises:
            NotDirect: only the application can answer it, if it can be answered.
        """
        given = {name: value for name, value in body.items() if name not in _PER_REQUEST and name not in _UNUSED}
        if not given.keys() <= _SETTINGS or body.get("kv_transfer_params"):
            raise NotDirect
        try:
            key = msgspec.json.encode(given, order="sorted")
        except (TypeError, ValueError):
            raise NotDirect from None
        found = self._settings.pop(key, None) or await self._checked(given)
        self._settings[key] = found
        if len(self._settings) > MAX_SETTINGS:
            self._settings.popitem(last=False)
        return found

    async def _checked(self, given: Mapping[str, Any]) -> Settings:
        if given.get("n") not in (None, 1) or given.get("tool_choice") not in _TOOL_CHOICES:
            raise NotDirect
        if given.get("logprobs") and (given.get("top_logprobs") or not given.get("return_token_ids")):
            raise NotDirect
        serving, renderer = self._serving, self._renderer
        placeholder = {"messages": [{"role": "user", "content": "-"}], "model": serving.models.model_name()}
        try:
            # A copy: vLLM's checks change what they are given.
            request = self._request_class.model_validate({**copy.deepcopy(dict(given)), **placeholder})
            rendered = await renderer.render_chat(request)  # checks the tools, and adapts the request to the parsers
            sampling = request.to_sampling_params(serving.model_config.max_model_len, serving.default_sampling_params)
        except Exception as error:
            raise NotDirect from error
        if not isinstance(rendered, tuple):
            raise NotDirect
        if sampling.logprobs is not None:
            sampling.flat_logprobs = True
        if not sampling.stop:
            sampling.detokenize = False  # the text is decoded once, at the end
        without_tools = request.tools is None or (
            request.tool_choice == "none" and renderer.exclude_tools_when_tool_choice_none
        )
        defaults = {**renderer.default_chat_template_kwargs, "tokenize": False}
        if not without_tools:
            defaults["tools"] = [tool.model_dump() for tool in request.tools]
        template = request.build_chat_params(renderer.chat_template, renderer.chat_template_content_format)
        limits = request.build_tok_params(serving.model_config)
        kwargs = serving._effective_chat_template_kwargs(request)
        return Settings(request, sampling, template.with_defaults(defaults), limits, kwargs)

    async def rendered(self, settings: Settings, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """Return the tokens that the chat template makes of messages, with the beginning of a reply.

        Raises:
            NotDirect: vLLM refuses them.
        """
        copies = [_copied(message) for message in messages]
        renderer = self._renderer.renderer
        try:
            if sum(map(_num_characters, copies)) < LONG_CHAT:
                _, (prompt,) = renderer.render_chat([copies], settings.template, settings.limits)
            else:
                _, (prompt,) = await renderer.render_chat_async([copies], settings.template, settings.limits)
            return list(prompt["prompt_token_ids"])
        except Exception as error:
            raise NotDirect from error

    async def complete(self, settings: Settings, body: Mapping[str, Any], prompt: list[int]) -> dict[str, Any]:
        """Return the chat completion of a prompt; its token fields are on its message.

        Raises:
            NotDirect: vLLM refuses the request.
        """
        serving, request = self._serving, settings.request
        request_id = f"chatcmpl-{uuid.uuid4().hex}"
        try:
            params = self._sampling(settings, body, len(prompt))
            parser = None
            if serving.parser_cls is not None:
                parser = serving._make_parser(request, self._tokenizer, settings.parser_kwargs)
            reasoning = serving._engine_reasoning_kwargs(request, parser, settings.parser_kwargs, prompt)
            serving._preflight(1)
            outputs = self._llm.generate(
                self._tokens_input(prompt), params, request_id, priority=_priority(body), **reasoning
            )
        except Exception as error:
            raise NotDirect from error
        final = None
        async with aclosing(outputs):
            try:
                async for output in outputs:
                    final = output
            except Exception as error:
                # What vLLM refuses at the start its application refuses too, and says so; a broken engine is noticed.
                raise NotDirect from error
        if final is None or final.outputs[0].finish_reason == "error":
            raise NotDirect
        if final.outputs[0].finish_reason == ABORT:
            return ENDED
        return await self._completion(settings, params, parser, final)

    def _sampling(self, settings: Settings, body: Mapping[str, Any], num_prompt: int) -> Any:
        serving = self._serving
        length = body.get("max_completion_tokens")
        length = body.get("max_tokens") if length is None else length
        seed = body.get("seed")
        for number in (length, seed):
            if number is not None and type(number) is not int:
                raise NotDirect
        if (length is not None and length < 1) or (seed is not None and seed not in _INT64):
            raise NotDirect
        params = copy.copy(settings.sampling)
        params.max_tokens = self._max_tokens(
            serving.model_config.max_model_len,
            length,
            num_prompt,
            serving.default_sampling_params,
            serving.override_max_tokens,
        )
        if params.max_tokens < max(1, params.min_tokens):
            raise NotDirect
        if seed is not None and seed != -1:  # -1 is none
            params.seed = seed
        return params

    async def _completion(self, settings: Settings, params: Any, parser: Any, final: Any) -> dict[str, Any]:
        serving, request = self._serving, settings.request
        output = final.outputs[0]
        generated = list(output.token_ids)
        prompt = final.prompt_token_ids
        text = output.text
        if not params.detokenize:
            decode = self._text if len(generated) < LONG_REPLY else _in_thread(self._text)
            decoded = decode(params, prompt, generated, output.finish_reason)
            text = decoded if isinstance(decoded, str) else await decoded
        message: dict[str, Any] = {"role": serving.response_role, "content": text}
        finish_reason = output.finish_reason or "stop"
        if parser is not None:
            if hasattr(parser, "set_prompt_token_ids"):
                parser.set_prompt_token_ids(prompt)
            reasoning, content, calls = parser.parse(
                text, request, enable_auto_tools=serving.enable_auto_tools, model_output_token_ids=generated
            )
            message["content"] = content
            if reasoning is not None:
                message["reasoning"] = reasoning
            has_tools = request.tools and request.tool_choice in (None, "auto")
            if calls and has_tools and serving.enable_auto_tools and serving.parser_cls.tool_parser_cls:
                calls = calls[:1] if request.parallel_tool_calls is False else calls
                message["tool_calls"] = [_call(call) for call in calls]
                finish_reason = "tool_calls"
        if request.return_token_ids and request.logprobs:
            message["prompt_token_ids"] = array("i", prompt)
            message["generation_token_ids"] = generated
            message["generation_log_probs"] = _sampled_log_probs(output.logprobs)
            if output.weight_versions:
                message[VERSIONS_FIELD] = stretches(output)
        choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": finish_reason}
        if output.routed_experts is not None:
            choice["routed_experts"] = find("numpy2base64")(output.routed_experts)
        return {
            "id": final.request_id,
            "object": "chat.completion",
            "created": int(time.time()),
            "model": request.model,
            "choices": [choice],
            "usage": self._usage(parser, final, generated),
        }

    def _usage(self, parser: Any, final: Any, generated: list[int]) -> dict[str, Any]:
        serving, num_prompt = self._serving, len(final.prompt_token_ids)
        usage: dict[str, Any] = {
            "prompt_tokens": num_prompt,
            "completion_tokens": len(generated),
            "total_tokens": num_prompt + len(generated),
        }
        if serving.enable_prompt_tokens_details and final.num_cached_tokens is not None:
            usage["prompt_tokens_details"] = {"cached_tokens": final.num_cached_tokens}
        if parser is not None and getattr(serving, "_include_reasoning_tokens_details", False):
            usage["completion_tokens_details"] = {"reasoning_tokens": parser.count_reasoning_tokens(generated)}
        return usage

    def _text(self, params: Any, prompt: Sequence[int], generated: list[int], finish_reason: str | None) -> str:
        """Return the text that vLLM's detokenizer makes of a reply, the token that ended it left out."""
        request = SimpleNamespace(
            request_id="", sampling_params=params, prompt_token_ids=list(prompt[-_CONTEXT:]), prompt_embeds=None
        )
        detokenizer = self._detokenizer.from_new_request(self._tokenizer, request)
        detokenizer.update(generated, finish_reason == "stop")
        text: str = detokenizer.get_next_output_text(True, False)
        return text


def _priority(body: Mapping[str, Any]) -> int:
    """Return the place of a request in the engine's queue; lower numbers are first."""
    priority = body.get("priority", 0)
    if type(priority) is not int or priority not in _INT64:
        raise NotDirect
    return priority


def _num_characters(message: Mapping[str, Any]) -> int:
    """Return about how many characters of a message the template renders."""
    content = message.get("content")
    num = len(content) if isinstance(content, str) else sum(len(part.get("text") or "") for part in content or ())
    return num + sum(len(call["function"].get("arguments") or "") for call in message.get("tool_calls") or ())


def _copied(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message that vLLM may change."""
    copied = dict(message)
    if copied.get("tool_calls"):
        copied["tool_calls"] = [{**call, "function": dict(call["function"])} for call in copied["tool_calls"]]
    reasoning = copied.pop("reasoning_content", None)
    if reasoning is not None and copied.get("reasoning") is None:
        copied["reasoning"] = reasoning  # its name in vLLM
    return copied


def _call(call: Any) -> dict[str, Any]:
    return {
        "id": call.id or f"chatcmpl-tool-{uuid.uuid4().hex[:16]}",
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    }


def _sampled_log_probs(log_probs: Any) -> list[float]:
    """Return the first log prob of each position, which is that of the sampled token."""
    values = log_probs.logprobs
    return [max(values[start], _LOWEST_LOG_PROB) for start in log_probs.start_indices]


def _in_thread(function: Any) -> Any:
    return lambda *arguments: asyncio.to_thread(function, *arguments)
