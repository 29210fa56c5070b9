"""A policy that goes wrong in the way the request's metadata asks for."""

import asyncio
import json
import sys
from collections.abc import Callable
from typing import Any

import gymq
from gymq.testing import reply

NAN = float("nan")


def raises(error: BaseException) -> Callable[[], Any]:
    def action() -> Any:
        raise error

    return action


def with_item(**members: Any) -> dict[str, Any]:
    """A reply whose message has further, or other, members."""
    answer = reply("fine")
    answer["output"][0] |= members
    return answer


def nested() -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(20_000):
        value = {"a": value}
    return value


def failed(message: str, *, retryable: bool = True) -> gymq.RolloutError:
    return gymq.RolloutError(gymq.FailureClass.MODEL_FAILED, message, retryable=retryable)


FAULTS: dict[str, Callable[[], Any]] = {
    "refused": raises(failed("connection refused")),
    "overloaded": raises(failed("503 try later")),
    "forbidden": raises(failed("401 no such key", retryable=False)),
    "key error": raises(KeyError("choices")),
    "exits": lambda: sys.exit(3),
    "none": lambda: None,
    "number": lambda: 0,
    "list": lambda: [reply("fine")],
    "text": lambda: "fine",
    "half": lambda: {"id": "resp_1", "object": "response"},
    "empty": dict,
    "output is text": lambda: reply("fine") | {"output": "fine"},
    "output is null": lambda: reply("fine") | {"output": None},
    "item without type": lambda: with_item(type=None),
    "content is a number": lambda: with_item(content=0),
    "text is a number": lambda: with_item(content=[{"type": "output_text", "text": 0, "annotations": []}]),
    "log probs are NaN": lambda: with_item(
        prompt_token_ids=[1], generation_token_ids=[2, 3], generation_log_probs=[NAN, NAN]
    ),
    "token ids are text": lambda: with_item(
        prompt_token_ids=[1], generation_token_ids=["two"], generation_log_probs=[-1.0]
    ),
    "usage is NaN": lambda: reply("fine") | {"usage": {"input_tokens": NAN, "output_tokens": 1, "total_tokens": NAN}},
    "object inside": lambda: with_item(note=object()),
    "integer too large": lambda: with_item(note=10**30),
    "nested too deeply": lambda: with_item(note=nested()),
}


class FaultyPolicy(gymq.Model):
    """Says "fine", unless something else is asked for."""

    max_concurrency = 100_000

    async def respond(self, request: gymq.ModelRequest) -> Any:
        fault = json.loads(request.params["metadata"]["script"]).get("model_fault")
        if fault == "hangs":
            await asyncio.sleep(3600)
        return FAULTS.get(fault, lambda: reply("fine"))()
