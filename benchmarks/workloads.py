"""The workloads: what one rollout consists of, and how many are made."""

from __future__ import annotations

import argparse
import json
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gymq.defaults import Layout

ADD = {
    "type": "function",
    "name": "add",
    "description": "Add to the counter.",
    "parameters": {
        "type": "object",
        "properties": {"amount": {"type": "integer"}},
        "required": ["amount"],
        "additionalProperties": False,
    },
    "strict": True,
}
"""The tool of the environment of `five-turns`."""


@dataclass(frozen=True)
class Workload:
    """One kind of rollout.

    `turns` model calls, each but the last followed by one tool call in a session; `tokens` ids and log probs in all;
    every model call takes `latency_s`.
    """

    name: str
    what: str
    rollouts: int
    window: int  # rollouts in flight
    turns: int = 1
    tokens: int = 0
    latency_s: float = 0.0
    over_http: bool = False  # rows are posted to the bridge, and the model is an endpoint
    layout: Layout = "kinds"

    @property
    def stateful(self) -> bool:
        return self.turns > 1

    def row(self, number: int) -> bytes:
        text = f"Question {number}: what is the capital of Switzerland? Answer in one word."
        told = {"turns": str(self.turns), "tokens": str(self.tokens), "latency_s": str(self.latency_s)}
        params: dict[str, Any] = {"input": [{"role": "user", "content": text}], "metadata": told}
        if self.stateful:
            params["tools"] = [ADD]  # else gymq offers that of the environment, and the floor would send less
        return json.dumps({"responses_create_params": params, "answer": "Bern"}).encode()


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("single-step", "one model call, one verify", 6000, 256),
        Workload("five-turns", "session, five model calls, four tool calls, verify", 2000, 256, turns=5),
        Workload("long-rollout", "8,192 tokens with ids and log probs, one verify", 640, 64, tokens=8192),
        Workload("http-single-step", "as single-step, over HTTP on both sides", 4000, 64, over_http=True),
        Workload("http-five-turns", "as five-turns, over HTTP on both sides", 1000, 64, turns=5, over_http=True),
        Workload("http-long-rollout", "as long-rollout, over HTTP", 320, 64, tokens=8192, over_http=True),
        Workload("sleepy", "2,000 in flight, each model call takes 2 s", 6000, 2000, latency_s=2.0),
    )
}


def chosen(parser: argparse.ArgumentParser, names: Sequence[str]) -> list[Workload]:
    """Return workloads by their names; a name that is unknown ends the program with a sentence."""
    if unknown := sorted(set(names) - set(WORKLOADS)):
        parser.error(f"unknown workload {', '.join(unknown)}; choose from {', '.join(WORKLOADS)}")
    return [WORKLOADS[name] for name in names]


def model_reply(turns: int, tokens: int, num_outputs: int) -> dict[str, Any]:
    """What the model of the benchmarks answers: a tool call, or in the last turn a text."""
    if num_outputs < 2 * (turns - 1):
        call_id = f"call_{num_outputs}"
        item: dict[str, Any] = {
            "type": "function_call",
            "id": call_id,
            "call_id": call_id,
            "name": "add",
            "arguments": '{"amount": 1}',
            "status": "completed",
        }
    else:
        item = {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "Bern", "annotations": []}],
        }
    if tokens:
        item["prompt_token_ids"] = array("i", range(64))
        item["generation_token_ids"] = array("i", [1000 + (7919 * n) % 50000 for n in range(tokens)])
        item["generation_log_probs"] = array("f", [-((n * 2654435761) % 1000003) / 400000 for n in range(tokens)])
    return response_of(item, 20, max(2, tokens))


def response_of(item: dict[str, Any], input_tokens: int, output_tokens: int) -> dict[str, Any]:
    """Return a Responses object around one output item."""
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 0,
        "model": "bench",
        "output": [item],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": input_tokens,
            "output_tokens": output_tokens,
            "total_tokens": input_tokens + output_tokens,
        },
    }
