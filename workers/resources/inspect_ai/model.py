"""The model of an evaluation: the policy of the rollout that a sample is, or the judge of its worker."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

from inspect_ai.log import EvalSample
from inspect_ai.model import (
    ChatMessage,
    GenerateConfig,
    ModelAPI,
    ModelOutput,
    messages_to_openai,
    model_output_from_openai,
    modelapi,
)
from inspect_ai.tool import ToolChoice, ToolInfo

import gymq
from gymq import responses
from gymq.ext.http.chat_completion import to_chat_completion
from gymq.ext.http.chat_request import from_chat_request

MODEL = "gymq/policy"
JUDGE = "judge"

# What a request has under another name.
_NAMES = {"temperature": "temperature", "top_p": "top_p", "max_tokens": "max_tokens", "stop_seqs": "stop"}


class Playing:
    """A sample while it is evaluated.

    Attributes:
        completed: the library's record of it, in the end.
        is_scoring: its scorers run.
        failed: the failure of a model call that ended it.
    """

    def __init__(
        self, policy: gymq.Policy, judge: Callable[[dict[str, Any]], Awaitable[dict[str, Any]]] | None
    ) -> None:
        self.completed: asyncio.Future[EvalSample] = asyncio.get_running_loop().create_future()
        self.is_scoring = False
        self.failed: gymq.RolloutError | None = None
        self._policy = policy
        self._judge = judge
        self._asking: set[asyncio.Future[Any]] = set()
        self._has_ended = False

    def end(self) -> None:
        """Let the sample end at its next model call: nothing waits for it any more."""
        self._has_ended = True
        for asking in self._asking:
            asking.cancel()

    async def ask(self, model: str, params: dict[str, Any]) -> dict[str, Any]:
        """Ask the policy or the judge.

        Raises:
            RolloutError: there is no reply.
        """
        if self._has_ended:
            raise gymq.ComponentFailed("the rollout has ended")
        try:
            asking = asyncio.ensure_future(self._question(model, params))
        except gymq.RolloutError as error:
            self.failed = error
            raise
        self._asking.add(asking)
        try:
            return await asking
        except asyncio.CancelledError:
            if not self._has_ended:
                raise
            raise gymq.ComponentFailed("the rollout has ended") from None
        except gymq.RolloutError as error:
            self.failed = error
            raise
        finally:
            self._asking.discard(asking)

    def _question(self, model: str, params: dict[str, Any]) -> Awaitable[dict[str, Any]]:
        if model == JUDGE or self.is_scoring:
            if self._judge is None:
                text = "a model is asked to judge, and the option `judge_model_server` names none"
                raise gymq.JudgeFailed(text, curable=False)
            return self._judge(params)
        return self._policy.ask(params)


playing: ContextVar[Playing] = ContextVar("playing")


@modelapi(name="gymq")
class GymqModel(ModelAPI):
    """Asks through gymq: `gymq/judge` is the judge, `gymq/policy` the policy, and in scorers the judge too."""

    async def generate(
        self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> ModelOutput:
        request: dict[str, Any] = {"messages": await messages_to_openai(input)}
        for name, ours in _NAMES.items():
            if (value := getattr(config, name)) is not None:
                request[ours] = value
        if tools:
            request |= {"tools": [_tool(tool) for tool in tools], "tool_choice": _choice(tool_choice)}
        params = responses.validate_params(from_chat_request(request))
        reply = await playing.get().ask(self.model_name, params)
        return await model_output_from_openai(to_chat_completion(reply))


def _tool(tool: ToolInfo) -> dict[str, Any]:
    parameters = json.loads(tool.parameters.model_dump_json(exclude_none=True))
    function = {"name": tool.name, "description": tool.description, "parameters": parameters}
    return {"type": "function", "function": function}


def _choice(choice: ToolChoice) -> str | dict[str, Any]:
    if isinstance(choice, str):
        return "required" if choice == "any" else choice
    return {"type": "function", "function": {"name": choice.name}}
