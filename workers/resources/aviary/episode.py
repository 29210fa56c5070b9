"""One environment while a rollout works on it: actions in, observations and rewards out."""

from __future__ import annotations

import inspect
import json
from contextlib import suppress
from typing import Any, Protocol

import httpx
import tenacity
from aviary.core import (
    Environment,
    EnvironmentClient,
    Message,
    Tool,
    ToolCall,
    ToolCallFunction,
    ToolRequestMessage,
    ToolResponseMessage,
)
from aviary.envs.gsm8k import CalculatorEnv
from aviary.message import ENV_STATE_INFO_KEY

import gymq

SUBMIT = "submit_answer"
NO_JSON = "Invalid tool call arguments (not a valid JSON)"
OVER = "The episode is over."


class FunctionCall(Protocol):
    """A `function_call` item of a model reply; `arguments` is JSON text."""

    call_id: str
    name: str
    arguments: str


class Episode:
    """An environment, its first observations, and the rewards earned in it."""

    def __init__(self, env_id: str, env: Environment[Any]) -> None:
        self.env_id = env_id
        self.reward = 0.0
        self.done = False
        self.closed = False
        self.first: dict[str, Any] = {}
        self._env = env

    async def reset(self) -> None:
        """Start it.

        Raises:
            ComponentFailed: it is elsewhere, and cannot be reached.
        """
        try:
            messages, tools = await self._env.reset()
        except httpx.HTTPError as error:
            raise gymq.ComponentFailed(f"the environment could not be started: {type(error).__name__}") from None
        self.first = {"obs": observations(messages), "tools": [tool_schema(tool) for tool in tools]}

    async def step(self, action: list[FunctionCall]) -> dict[str, Any]:
        """Run the calls of one model reply.

        Raises:
            ComponentFailed: something outside, for example Wikipedia, did not answer.
        """
        if self.done:
            return _answer([_output(call, OVER) for call in action], 0.0, True)
        try:
            calls = [_tool_call(item) for item in action]
        except (ValueError, RecursionError):
            return _answer([Message(content=NO_JSON)], 0.0, False)
        calls, too_late = _up_to_submission(calls)
        try:
            messages, reward, self.done = await self._run(calls)
        except (httpx.HTTPError, tenacity.RetryError, OSError) as error:
            raise gymq.ComponentFailed(f"the environment could not run its tool: {type(error).__name__}") from None
        self.reward += reward
        return _answer(
            [*messages, *(ToolResponseMessage.from_call(call, OVER) for call in too_late)], reward, self.done
        )

    async def close(self) -> None:
        """Release the environment. Earned rewards stay."""
        if not self.closed:
            self.closed = True
            with suppress(httpx.HTTPError):  # one that is elsewhere ends by itself after a while
                await self._env.close()

    async def _run(self, calls: list[ToolCall]) -> tuple[list[Message], float, bool]:
        """Known tools one after the other; a call that does not fit its tool fails alone."""
        if isinstance(self._env, EnvironmentClient):  # a served environment has the tools too
            return await self._step(calls)
        known = {tool.info.name: tool for tool in self._env.tools}
        if not any(call.function.name in known for call in calls):
            return await self._step(calls)
        messages: list[Message] = []
        unknown: list[Message] = []
        total, done = 0.0, False
        for call in calls:
            tool = known.get(call.function.name)
            if tool is None and isinstance(
                self._env, CalculatorEnv
            ):  # which would take it for a failure if it is alone
                unknown.append(ToolResponseMessage.from_call(call, ""))
                continue
            answers, reward, ends = await (self._step([call]) if tool is None else self._call(tool, call))
            messages += answers
            total, done = total + reward, done or ends
        return [*messages, *unknown], total, done

    async def _call(self, tool: Tool, call: ToolCall) -> tuple[list[Message], float, bool]:
        try:
            inspect.signature(tool._tool_fn).bind(**call.function.arguments)
            return await self._step([call])
        except (TypeError, ValueError, AttributeError, OverflowError) as error:
            text = f"{call.function.name} failed: {error}"
            return [ToolResponseMessage.from_call(call, text)], *self._failure()

    def _failure(self) -> tuple[float, bool]:
        """Reward and end of a failed call, as the environment has them."""
        config = getattr(self._env, "config", None)
        if config is not None:
            return config.tool_failure_reward, config.done_on_failure
        return getattr(self._env, "tool_failure_reward", 0.0), False

    async def _step(self, calls: list[ToolCall]) -> tuple[list[Message], float, bool]:
        messages, reward, done, truncated = await self._env.step(ToolRequestMessage(tool_calls=calls))
        return messages, float(reward), done or truncated


def _tool_call(item: FunctionCall) -> ToolCall:
    """
    Raises:
        ValueError: the arguments are no JSON object.
    """
    arguments = json.loads(item.arguments)
    if not isinstance(arguments, dict):
        raise ValueError("no object")
    return ToolCall(id=item.call_id, function=ToolCallFunction(name=item.name, arguments=arguments))


def _up_to_submission(calls: list[ToolCall]) -> tuple[list[ToolCall], list[ToolCall]]:
    """Return the calls up to the first submission, and those after it, which would be further guesses."""
    for position, call in enumerate(calls, 1):
        if call.function.name == SUBMIT:
            return calls[:position], calls[position:]
    return calls, []


def _answer(messages: list[Message], reward: float, done: bool) -> dict[str, Any]:
    return {"obs": observations(messages), "reward": reward, "done": done}


def _output(item: FunctionCall, text: str) -> ToolResponseMessage:
    return ToolResponseMessage(name=item.name, tool_call_id=item.call_id, content=text)


def observations(messages: list[Message]) -> list[dict[str, Any]]:
    """Aviary's messages as items of the Responses API."""
    items: list[dict[str, Any]] = []
    for message in messages:
        if isinstance(message, ToolResponseMessage):
            output = {"call_id": message.tool_call_id, "output": message.content}
            items.append({"type": "function_call_output", **output, "id": None, "status": None})
            continue
        mark = {"is_env_state": True} if (message.info or {}).get(ENV_STATE_INFO_KEY) else {}
        items += [
            {"type": "message", "role": "user", "content": text, **mark} for text in _texts(message.content or "")
        ]
    return items


def _texts(content: str) -> list[str]:
    """Return the content, or the texts among its parts if it is a list of parts."""
    try:
        parts = json.loads(content) if content.startswith("[") else None
    except (ValueError, RecursionError):
        parts = None
    if not isinstance(parts, list) or not all(isinstance(part, dict) and "type" in part for part in parts):
        return [content]
    return [part["text"] for part in parts if isinstance(part.get("text"), str)]


def tool_schema(tool: Tool) -> dict[str, Any]:
    """Return a tool as an element of `responses_create_params.tools`."""
    info = tool.info.model_dump(exclude_none=True)
    parameters = info.get("parameters") or {"type": "object", "properties": {}, "required": []}
    return {
        "type": "function",
        "name": info["name"],
        "description": info["description"],
        "parameters": {**parameters, "additionalProperties": False},
        "strict": True,
    }
