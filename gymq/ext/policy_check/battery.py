"""The calls with which a policy is checked: settings, conversations, and what came back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gymq.ext.conversion.to_chat import responses_to_chat
from gymq.failures import RolloutError
from gymq.protocol.messages import FailureClass
from gymq.protocol.tokens import GENERATION_FIELD, LOG_PROB_FIELD, PROMPT_FIELD, SAMPLING_FIELD
from gymq.responses import function_call_output, function_calls, user_message, validate_params
from gymq.responses.items import is_truncated

_PROMPTS = ("What is 3 + 4?", "Say a few words.", "Which day comes after Monday?", "Count to five.")
ADD = {
    "type": "function",
    "name": "add",
    "description": "Add two integers.",
    "parameters": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    },
    "strict": True,
}
_OF_RESPONSES = ("temperature", "top_p")  # settings with a field of their own

Ask = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
"""Ask the policy: create parameters to a Responses object. Raises RolloutError."""


@dataclass(frozen=True)
class PolicyRow:
    """One kind of call.

    Attributes:
        name: as the table shows it.
        sampling: settings by vLLM's names; those that are left out are neutral.
        num_turns: calls of a conversation, which has a tool if there are several.
        max_tokens: of each reply.
    """

    name: str
    sampling: Mapping[str, Any] = field(default_factory=dict)
    num_turns: int = 1
    max_tokens: int = 32


ROWS = (
    PolicyRow("temperature 0.3", {"temperature": 0.3}),
    PolicyRow("temperature 0.7", {"temperature": 0.7}),
    PolicyRow("temperature 1", {"temperature": 1.0}),
    PolicyRow("temperature 1.5", {"temperature": 1.5}),
    PolicyRow("no temperature"),
    PolicyRow("top_p 0.8", {"temperature": 1.0, "top_p": 0.8}),
    PolicyRow("top_k 5, temperature 1.3", {"temperature": 1.3, "top_k": 5}),
    PolicyRow("min_p 0.05", {"temperature": 1.0, "min_p": 0.05}),
    PolicyRow("repetition_penalty 1.2", {"temperature": 1.0, "repetition_penalty": 1.2}),
    PolicyRow("presence_penalty 0.5", {"temperature": 1.0, "presence_penalty": 0.5}),
    PolicyRow("frequency_penalty 0.5", {"temperature": 1.0, "frequency_penalty": 0.5}),
    PolicyRow("two turns with a tool", {"temperature": 1.0}, num_turns=2),
    PolicyRow("cut after 3 tokens", {"temperature": 1.0}, max_tokens=3),
)


@dataclass(frozen=True)
class CheckedCall:
    """The tokens of a call, as a trainer gets them.

    Attributes:
        chat: what was asked, as a chat.
        is_cut: whether the reply says that it was cut by `max_tokens`.
        sampling: what the reply says that it was sampled with; empty if it does not.
    """

    chat: Mapping[str, Any]
    prompt: list[int]
    generated: list[int]
    log_probs: list[float]
    sampling: Mapping[str, Any]
    is_cut: bool


@dataclass(frozen=True)
class CheckedReply:
    """A conversation: its calls, and the items of all replies."""

    calls: list[CheckedCall]
    items: list[dict[str, Any]]


async def roll_out(row: PolicyRow, ask: Ask) -> list[CheckedReply]:
    """Return the conversations of a row, all at once.

    Raises:
        RolloutError: a call failed, or its reply has no tokens.
    """
    prompts = [_PROMPTS[number % len(_PROMPTS)] for number in range(8)]
    return await asyncio.gather(*(_converse(row, prompt, ask) for prompt in prompts))


async def _converse(row: PolicyRow, prompt: str, ask: Ask) -> CheckedReply:
    items: list[dict[str, Any]] = [user_message(prompt)]
    done = CheckedReply([], [])
    for _ in range(row.num_turns):
        params = _params(row, items)
        response = await ask(params)
        output = response["output"]
        done.calls.append(_call(params, response))
        done.items.extend(output)
        called = function_calls(response)
        answers = [dict(function_call_output(call["call_id"], "7")) for call in called]
        items = [*items, *output, *(answers or [user_message("Are you sure?")])]
    return done


def _params(row: PolicyRow, items: list[dict[str, Any]]) -> dict[str, Any]:
    params: dict[str, Any] = {"input": items, "max_output_tokens": row.max_tokens}
    params |= {name: value for name, value in row.sampling.items() if name in _OF_RESPONSES}
    others = {name: value for name, value in row.sampling.items() if name not in _OF_RESPONSES}
    if others:
        params["metadata"] = {"extra_body": json.dumps(others)}
    return params | {"tools": [ADD]} if row.num_turns > 1 else params


def _call(params: dict[str, Any], response: Mapping[str, Any]) -> CheckedCall:
    item = next((one for one in reversed(response["output"]) if one.get(GENERATION_FIELD)), None)
    if item is None:
        text = "the replies have no token ids: set return_token_id_information"
        raise RolloutError(FailureClass.MODEL_FAILED, text)
    return CheckedCall(
        responses_to_chat(validate_params(params)),
        list(item[PROMPT_FIELD]),
        list(item[GENERATION_FIELD]),
        list(item[LOG_PROB_FIELD]),
        item.get(SAMPLING_FIELD) or {},
        is_truncated(response),
    )
