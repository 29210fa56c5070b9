"""Samples as episodes of verifiers: traces are graphs of messages, each with the tokens that it adds.

The form is that of verifiers 0.4.0, https://github.com/PrimeIntellect-ai/verifiers, in `verifiers/v1`: `trace.py`,
`graph.py`, `episode.py` and `serve/delta.py`.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any

from gymq import responses
from gymq.data.records import Record
from gymq.data.rows import PARAMS, ROLLOUT_INDEX, TASK_INDEX
from gymq.protocol.messages import FailureClass
from gymq.responses.tokens import GENERATION_TOKEN_IDS
from gymq.trainer.groups import Row, Sample, SampleFailed

_GIVEN_ROLES = ("user", "system", "developer", "tool")  # of messages that no model wrote

TRACE_VERSION = 1
TASK_TYPE = "GymqTask"  # name of the class of tasks; see examples/trainers/prime_rl
_LARGEST_INT = 2**53  # that a float has exactly
_NO_METRICS = ("reward", "mask_sample", TASK_INDEX, ROLLOUT_INDEX)


def task_of(data: Row) -> Row:
    """Return a task as episodes record it, with the hash by which prime-rl recognizes the task that it sent.

    Args:
        data: fields of the task, as they were sent. Fields that are null are not part of the hash.
    """
    text = json.dumps(_without_null(data), sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return {"type": TASK_TYPE, "data": data, "key": digest, "hash": digest}


def failed_episode(task: Row, failed: SampleFailed) -> Row:
    """Return an episode that failed: an error, and neither a trace nor a reward."""
    error = {"type": failed.failure_class, "message": failed.message, "status_code": failed.status}
    is_timeout = failed.failure_class == FailureClass.DEADLINE_EXCEEDED
    return _episode(task) | {"ok": False, "errors": [error], "is_timeout": is_timeout}


def episode(task: Row, sample: Sample, agent: Row, submitted_at: float, ended_at: float) -> tuple[Row, Row]:
    """Return an episode without its trace, and the message that carries the trace.

    The sampled tokens of each call are in one node, behind the tokens that the call's prompt adds. Branches of the
    conversation are paths of their own; their nodes have tokens and no text. If the verifier asks for a mask, no token
    counts as sampled, so the rollout is in the baseline of its group and out of the loss.

    Args:
        agent: what the trace records of its agent: `model` and `sampling`.
        submitted_at, ended_at: Unix time in seconds.
    """
    result = sample.result
    about = {name: value for name, value in result["gymq"].items() if name != "branches"}
    graph = _Graph(result, ended_at)
    trace_id = uuid.uuid4().hex
    begun_at = ended_at - float(about["duration_s"])
    opened = {
        "version": TRACE_VERSION,
        "id": trace_id,
        "verifiers": {"version": f"gymq {version('gymq')}", "commit": None},
        "task": task,
    }
    fields = {
        "agent": {"name": "agent", "config": agent, "trainable": True},
        "rewards": {"reward": {"score": sample.reward, "weight": 1.0}},
        "metrics": _metrics(result, json.loads(task["data"]["row"])),
        "info": {"gymq": about},
        "is_completed": True,
        "ok": True,
        "stop_condition": "agent_completed",
        "timing": {"start": submitted_at, "agent": {"start": begun_at, "end": ended_at}},
    }
    delta = {"trace": trace_id, "open": opened, "nodes": graph.nodes, "calls": graph.calls, "set": fields}
    return _episode(task) | {"ok": True}, delta


def _episode(task: Row) -> Row:
    return {"id": uuid.uuid4().hex, "env": {"id": "gymq"}, "task": task, "errors": []}


class _Graph:
    """The messages of a rollout, each with the index of the one before it, and the model calls."""

    def __init__(self, result: Row, ended_at: float) -> None:
        self.nodes: list[Row] = []
        self.calls: list[Row] = []
        self._ended_at = ended_at
        self._response = result["response"]
        output: list[Row] = self._response["output"]
        has_tokens = any(item.get(GENERATION_TOKEN_IDS) for item in output)
        self._add_conversation(result[PARAMS], output, _tokens(Record.of(result)) if has_tokens else iter(()))
        for record in Record.branches_of(result):
            self._add_branch(record)

    def _add_conversation(self, params: Row, output: Sequence[Row], tokens: Iterator[Row]) -> None:
        given = params["input"]
        given = [{"role": "user", "content": given}] if isinstance(given, str) else list(given)
        if params.get("instructions"):
            given.insert(0, {"role": "system", "content": params["instructions"]})
        parent = None
        for turn in turns(given):
            parent = self._add(parent, message(turn))
        for turn in turns(output):
            if not is_models(turn[0]):
                parent = self._add(parent, message(turn))
                continue
            has_tokens = any(item.get(GENERATION_TOKEN_IDS) for item in turn)
            parent = self._add(parent, message(turn), next(tokens) if has_tokens else {"usage": None})
        if self.calls and self.calls[-1]["usage"] is None:
            self.calls[-1]["usage"] = _usage(self._response.get("usage"))
        if self.calls and (self._response.get("incomplete_details") or {}).get("reason") == "max_output_tokens":
            self.calls[-1]["finish_reason"] = "length"

    def _add_branch(self, record: Record) -> None:
        parent = None
        for tokens in _tokens(record):
            parent = self._add(parent, {"role": "assistant", "content": None}, tokens)

    def _add(self, parent: int | None, message: Row, sampled: Row | None = None) -> int:
        """Add a message, and the call that wrote it if it was sampled; return its index."""
        node = {"parent": parent, "message": message, "sampled": sampled is not None, "timestamp": self._ended_at}
        if sampled is not None:
            finish_reason = "tool_calls" if message.get("tool_calls") else "stop"
            call = {"node": len(self.nodes), "model": self._response.get("model"), "finish_reason": finish_reason}
            self.calls.append(call | {"usage": sampled["usage"]})
            node |= {name: value for name, value in sampled.items() if name != "usage"}
        self.nodes.append(node)
        return len(self.nodes) - 1


def _tokens(record: Record) -> Iterator[Row]:
    """Yield the tokens of each call: those that its prompt adds, and those that were sampled."""
    for added, generated in zip(record.spans[::2], record.spans[1::2], strict=True):
        num_sampled = generated.end - generated.start
        yield {
            "token_ids": record.token_ids[added.start : generated.end],
            "mask": [False] * (added.end - added.start) + [not record.mask] * num_sampled,
            "logprobs": [] if record.mask else record.log_probs[generated.start : generated.end],
            "usage": {"prompt_tokens": generated.start, "completion_tokens": num_sampled},
        }


def _usage(given: Mapping[str, Any] | None) -> Row | None:
    if not given:
        return None
    return {"prompt_tokens": given["input_tokens"], "completion_tokens": given["output_tokens"]}


def _metrics(result: Row, row: Row) -> dict[str, float]:
    """Return the numbers of the verdict, with the parts of the reward."""
    found = {name: value for name, value in result.items() if name not in row and name not in _NO_METRICS}
    found |= result.get("reward_components") or {}
    return {name: float(value) for name, value in found.items() if _is_metric(value)}


def _is_metric(value: object) -> bool:
    return isinstance(value, float) or (isinstance(value, int) and abs(value) <= _LARGEST_INT)


def _without_null(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_null(one) for name, one in value.items() if one is not None}
    return [_without_null(one) for one in value] if isinstance(value, list) else value


def turns(items: Sequence[Row]) -> Iterator[list[Row]]:
    """Yield the items of each message. A message of the model has the tokens of one call at most."""
    turn: list[Row] = []
    for item in items:
        begins_call = item.get(GENERATION_TOKEN_IDS) and any(one.get(GENERATION_TOKEN_IDS) for one in turn)
        if turn and (begins_call or not (is_models(item) and is_models(turn[0]))):
            yield turn
            turn = []
        turn.append(item)
    if turn:
        yield turn


def is_models(item: Row) -> bool:
    return item.get("role") not in _GIVEN_ROLES and not str(item.get("type")).endswith("_output")


def message(items: Sequence[Row]) -> Row:
    item = items[0]
    if is_models(item):
        thoughts = [part.get("text") or "" for one in items for part in one.get("summary") or ()]
        calls = [
            {"id": call["call_id"], "name": call["name"], "arguments": call.get("arguments") or ""}
            for call in items
            if call.get("type") == "function_call"
        ]
        text = responses.assistant_text({"output": items}) or None
        reasoning = "\n".join(thoughts) or None
        return {"role": "assistant", "content": text, "reasoning_content": reasoning, "tool_calls": calls or None}
    if "role" not in item or item["role"] == "tool":
        call_id = str(item.get("call_id") or item.get("tool_call_id") or "")
        return {"role": "tool", "tool_call_id": call_id, "content": _content(item.get("output", item.get("content")))}
    return {"role": "user" if item["role"] == "user" else "system", "content": _content(item.get("content"))}


def _content(given: Any) -> str | list[Row]:
    if not isinstance(given, list):
        return given if isinstance(given, str) else json.dumps(given)
    return [_part(part) for part in given]


def _part(part: Row) -> Row:
    if isinstance(part.get("text"), str):
        return {"type": "text", "text": part["text"]}
    url = part.get("image_url")
    if isinstance(url, str):
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "text", "text": json.dumps(part)}
