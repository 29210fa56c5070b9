"""Environments of verifiers ask their model through the rollout: in its name, within its time, into its journal.

This imports verifiers; the worker does it when it starts.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from openai.types.chat import ChatCompletion
from verifiers.clients.nemorl_chat_completions_client import NeMoRLChatCompletionsClient
from verifiers.errors import EmptyModelResponseError, OverlongPromptError
from verifiers.types import AssistantMessage

import gymq
from gymq import responses
from gymq.ext.http.chat_completion import to_chat_completion
from gymq.ext.http.chat_request import chat_messages_to_items, from_chat_request
from gymq.protocol.tokens import to_json

TOKEN_NAMES = {
    "prompt_token_ids": "prompt_ids",
    "generation_token_ids": "completion_ids",
    "generation_log_probs": "completion_logprobs",
}
CONVERSATION = ("input", "tools", "tool_choice", "parallel_tool_calls")  # the environment has its own


class RolloutClient(NeMoRLChatCompletionsClient):
    """The library's client for engines that return tokens, with the rollout in place of HTTP.

    Attributes:
        failed: why the last call had no answer; the library only keeps that there was none.
    """

    def __init__(self, rollout: gymq.Rollout) -> None:
        super().__init__(SimpleNamespace(chat=SimpleNamespace(completions=self)))
        self.failed: Exception | None = None
        self._rollout = rollout
        self._of_the_row = {name: value for name, value in rollout.params.items() if name not in CONVERSATION}
        self._turn = asyncio.Lock()  # a replay finds calls in the same order only if they are made one by one

    async def create(self, **request: Any) -> ChatCompletion:
        """Return what `AsyncOpenAI().chat.completions.create` does.

        Raises:
            OverlongPromptError: the prompt leaves no room for an answer; the environment ends the episode.
        """
        async with self._turn:
            try:
                asked = from_chat_request(_without_model(request))
                reply = await self._rollout.ask(responses.validate_params(self._of_the_row | asked))
            except Exception as error:
                self.failed = error
                raise
        self.failed = None
        if reply.overflowed:
            raise OverlongPromptError("the prompt does not fit into the model's context")
        return ChatCompletion.model_validate_json(to_json(to_chat_completion(reply.response)))

    @staticmethod
    def said_nothing(error: Exception) -> bool:
        """Return whether an episode ended because a reply had neither text nor calls."""
        return isinstance(error, EmptyModelResponseError)

    async def close(self) -> None:
        """There is nothing to close."""

    async def items(self, state: dict[str, Any]) -> list[responses.Item]:
        """Return the conversation of an episode as items; the sampled tokens are on the last item of each turn."""
        said = [message for message in state["completion"] if isinstance(message, AssistantMessage)]
        # From the end: an environment may begin with turns that no model made.
        for message, step in zip(reversed(said), reversed(state["trajectory"]), strict=False):
            for name, of_step in TOKEN_NAMES.items():
                if step["tokens"] is not None:
                    setattr(message, name, step["tokens"][of_step])
        messages, _ = await self.to_native_prompt(state["completion"])
        return chat_messages_to_items(messages)


def _without_model(request: dict[str, Any]) -> dict[str, Any]:
    """Return the request without transport fields, and without an empty model name."""
    dropped = {"extra_headers", "extra_body"} | (set() if request.get("model") else {"model"})
    return {name: value for name, value in request.items() if name not in dropped}
