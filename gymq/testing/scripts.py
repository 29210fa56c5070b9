"""Scripted inputs for tests: prompts, replies, calls and models that follow a script."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from gymq.failures import JudgeFailed
from gymq.judge.prompts import without_endings
from gymq.resources import ModelCaller
from gymq.responses import FunctionCall, response_without_model


def prompt(text: str, **params: Any) -> dict[str, Any]:
    """Return `responses_create_params`, the prompt of a row, with one user message."""
    return {"responses_create_params": {"input": [{"role": "user", "content": text}], **params}}


def reply(*parts: str | Mapping[str, Any]) -> dict[str, Any]:
    """Return a Responses object: a text becomes an assistant message, a mapping is an output item."""
    output: list[Mapping[str, Any]] = [
        {
            "id": f"msg_{position}",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": part, "annotations": []}],
        }
        if isinstance(part, str)
        else part
        for position, part in enumerate(parts)
    ]
    return response_without_model("test", output)


def function_call(name: str, arguments: Any, call_id: str = "call_1") -> FunctionCall:
    """Return a `function_call` output item; `arguments` are JSON text or a JSON value."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {
        "type": "function_call",
        "id": call_id,
        "call_id": call_id,
        "name": name,
        "arguments": text,
        "status": "completed",
    }


class ScriptedModel(ModelCaller):
    """Answers for a model worker: `answer(model, params)` gives a Responses object or raises."""

    def __init__(self, answer: Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]) -> None:
        self._answer = answer

    async def respond(self, model: str, params: dict[str, Any]) -> dict[str, Any]:
        return await self._answer(model, params)


class JudgeRule(msgspec.Struct, forbid_unknown_fields=True, frozen=True, rename={"contains": "if"}):
    """One rule of a scripted judge: its reply to a request that contains some texts.

    Attributes:
        say: the text of the reply.
        contains: texts that the request must contain, with the names of sections as the template of a judge has them;
            empty: the rule fits every request.
    """

    say: str
    contains: str | list[str] = []

    def fits(self, asked: str) -> bool:
        """Return whether the request contains the texts."""
        texts = [self.contains] if isinstance(self.contains, str) else self.contains
        return all(text in asked for text in texts)


class ScriptedJudge(ModelCaller):
    """A judge that replies by the first rule that fits; rules without texts come last.

    Attributes:
        unknown: a message for each request that no rule fits.
    """

    def __init__(self, rules: Sequence[JudgeRule]) -> None:
        self.unknown: list[str] = []
        self._rules = sorted(rules, key=lambda rule: not rule.contains)

    async def respond(self, model: str, params: dict[str, Any]) -> dict[str, Any]:
        """Return the reply to one request.

        Raises:
            JudgeFailed: no rule fits.
        """
        texts = "\n".join(texts_in(params.get("instructions"))) + "\n".join(texts_in(params["input"]))
        asked = without_endings(texts)
        for rule in self._rules:
            if rule.fits(asked):
                return reply(rule.say)
        self.unknown.append(f"no rule fits a request to {model} that ends with {asked[-200:]!r}")
        raise JudgeFailed(self.unknown[-1])


def texts_in(value: Any) -> list[str]:
    """Return all texts in a JSON value in order, except keys."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list):
        return []
    return [text for element in value for text in texts_in(element)]
