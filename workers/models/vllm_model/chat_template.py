"""The chat template of a tokenizer, applied in this process: the prompts of chats as tokens."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from gymq.workers.models.vllm_model.continuation import Shapes
from gymq.workers.models.vllm_model.exact_prompts import CannotRender, ExactPrompts, Messages
from gymq.workers.models.vllm_model.prepare import tokenize_body

import gymq
from gymq.responses import InvalidRequest

_BETWEEN_PARTS = "\n"

MAX_SETTINGS = 256
"""Tools and template arguments whose shapes of conversations are kept; those used least recently are dropped."""


class ChatTemplate:
    """Turns chats into tokens with one tokenizer; later turns continue the tokens of earlier ones."""

    def __init__(self, tokenizer: str) -> None:
        """
        Args:
            tokenizer: a folder, or a name on the Hugging Face hub.

        Raises:
            OptionsError: it cannot be loaded, has no template, or the library is not installed.
        """
        try:
            from transformers import AutoTokenizer  # takes seconds; only those wait who need it
        except ImportError:
            raise gymq.OptionsError("tokenizer: needs transformers: pip install 'gymq[chat-template]'") from None
        try:
            self._tokenizer = AutoTokenizer.from_pretrained(tokenizer)
        except (OSError, ValueError) as error:
            raise gymq.OptionsError(f"tokenizer: {tokenizer} cannot be loaded: {error}") from None
        if not self._tokenizer.chat_template:
            raise gymq.OptionsError(f"tokenizer: {tokenizer} has no chat template")
        decode = lambda ids: str(self._tokenizer.decode(ids, skip_special_tokens=False))  # noqa: E731
        self._exact_prompts = ExactPrompts(_ends_of_turn(tokenizer, self._tokenizer), decode)
        self._shapes: OrderedDict[bytes, Shapes] = OrderedDict()

    async def prompt(self, body: Mapping[str, Any], num_known: int = 0) -> list[int]:
        """Return the prompt of a chat body; sampled tokens on its messages stand in it as they are.

        Args:
            num_known: leading messages that are those of an earlier call, whose reply is the next one.

        Raises:
            InvalidRequest: the template refuses the messages.
        """
        settings = tokenize_body({**body, "messages": None})
        if body.get("tool_choice") == "none":
            settings.pop("tools", None)

        async def render(messages: Messages) -> list[int]:
            return self._rendered(messages, settings)

        try:
            return await self._exact_prompts.prompt(body["messages"], render, self._shapes_of(settings), num_known)
        except CannotRender as error:
            raise InvalidRequest("messages", f"the chat template cannot say them: {error}") from None

    def text(self, tokens: Sequence[int]) -> str:
        """Return the text of sampled tokens, without special ones."""
        return str(self._tokenizer.decode(tokens, skip_special_tokens=True))

    def _shapes_of(self, settings: Mapping[str, Any]) -> Shapes:
        key = msgspec.json.encode(settings, order="sorted")
        shapes = self._shapes[key] = self._shapes.pop(key, Shapes())
        if len(self._shapes) > MAX_SETTINGS:
            self._shapes.popitem(last=False)
        return shapes

    def _rendered(self, messages: Messages, settings: Mapping[str, Any]) -> list[int]:
        try:
            text = self._tokenizer.apply_chat_template(
                list(map(_spoken, messages)),
                tools=settings.get("tools"),
                tokenize=False,
                add_generation_prompt=True,
                **settings.get("chat_template_kwargs", {}),
            )
        except Exception as error:  # a template is a program of the tokenizer's author
            raise CannotRender(str(error)) from None
        return list(self._tokenizer.encode(text, add_special_tokens=False))  # the template has written them


def _ends_of_turn(name: str, tokenizer: Any) -> frozenset[int]:
    """Return the tokens at which sampling stops."""
    from transformers import GenerationConfig

    try:
        given = GenerationConfig.from_pretrained(name).eos_token_id
    except (OSError, ValueError):
        given = None  # it is that of the tokenizer
    ends = given if isinstance(given, list) else [given]
    return frozenset(token for token in (*ends, tokenizer.eos_token_id) if token is not None)


def _spoken(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message as templates expect it: its content is text, the arguments of its calls are objects."""
    spoken = dict(message)
    content = spoken.get("content")
    if isinstance(content, list):
        content = _BETWEEN_PARTS.join(part.get("text") or "" for part in content)
    spoken["content"] = content or ""
    if spoken.get("tool_calls"):
        spoken["tool_calls"] = [
            {**call, "function": {**call["function"], "arguments": _arguments(call["function"].get("arguments"))}}
            for call in spoken["tool_calls"]
        ]
    return spoken


def _arguments(text: Any) -> Any:
    """Return the arguments of a call as an object, as engines give them to a template; as they are if they are none."""
    try:
        arguments = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return text
    return arguments if isinstance(arguments, dict) else text
