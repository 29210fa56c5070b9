"""Traces of verifiers 0.4, https://github.com/PrimeIntellect-ai/verifiers: graphs of messages, each with its tokens.

The form is that of `verifiers/v1`: `trace.py`, `graph.py`, `episode.py`. A line of `traces.jsonl` is an episode with
the traces of its agents.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any

from gymq.data.jsonl import JsonlError
from gymq.data.records import Record
from gymq.data.rows import AGENT_REF, PARAMS, ROLLOUT_INDEX, TASK_INDEX
from gymq.data.trainer_results import result_fields
from gymq.ext.rollout_files.files import Format
from gymq.ext.rollout_files.rollout import ForeignRollout, index_or, number, split_chat
from gymq.ext.verifiers.messages import chat_message, is_models, message, turns
from gymq.protocol.messages import VerifiedRollout
from gymq.protocol.tokens import GENERATION_FIELD
from gymq.responses.items import is_truncated
from gymq.runs.outcome_fields import as_object, params_of, prompt_of

Row = dict[str, Any]

TASK_TYPE = "GymqTask"  # name of the class of tasks; see examples/trainers/prime_rl
_NO_METRICS = ("reward", "mask_sample", TASK_INDEX, ROLLOUT_INDEX)
# Fields of every task; what else it has is its taskset's.
_OF_EVERY_TASK = frozenset(
    (
        *("idx", "id", "prompt", "system_prompt", "image", "workdir", "agent_user", "skills", "network_allow"),
        *("network_block", "artifacts", "artifact_max_bytes", "timeout", "resources"),
    )
)


def task_of(data: Row) -> Row:
    """Return a task as episodes record it, with the hash by which prime-rl recognizes the task that it sent.

    Args:
        data: fields of the task, as they were sent. Fields that are null are not part of the hash.
    """
    text = json.dumps(_without_null(data), sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return {"type": TASK_TYPE, "data": data, "key": digest, "hash": digest}


def episode_of(task: Row) -> Row:
    """Return an episode without traces."""
    return {"id": uuid.uuid4().hex, "env": {"id": "gymq"}, "task": task, "errors": []}


def trace_of(
    result: Row, task: Row, agent: Row, submitted_at: float, ended_at: float, *, with_experts: bool = False
) -> Row:
    """Return the trace of a result: the rollout as a line of a result file has it.

    The sampled tokens of each call are in one node, behind the tokens that the call's prompt adds. Branches of the
    conversation are paths of their own; their nodes have tokens and no text. If the verifier asks for a mask, no token
    counts as sampled, so the rollout is in the baseline of its group and out of the loss.

    Args:
        agent: what the trace records of its agent: `model` and `sampling`.
        submitted_at, ended_at: Unix time in seconds.
        with_experts: whether nodes have the experts of their tokens, as bytes.

    Raises:
        NotTrainable: the result's tokens are not sequences, or its experts do not fit them.
    """
    about = {name: value for name, value in result["gymq"].items() if name != "branches"}
    graph = _Graph(result, ended_at, with_experts)
    begun_at = ended_at - float(about["duration_s"])
    return {
        "version": 1,
        "id": uuid.uuid4().hex,
        "verifiers": {"version": f"gymq {version('gymq')}", "commit": None},
        "task": task,
        "nodes": graph.nodes,
        "calls": graph.calls,
        "agent": {"name": "agent", "config": agent, "trainable": True},
        "rewards": {"reward": {"score": float(result["reward"]), "weight": 1.0}},
        "metrics": _metrics(result, json.loads(task["data"]["row"])),
        "info": {"gymq": about},
        "is_completed": True,
        "ok": True,
        "stop_condition": "agent_completed",
        "timing": {"start": submitted_at, "agent": {"start": begun_at, "end": ended_at}},
    }


class _Graph:
    """The messages of a rollout, each with the index of the one before it, and the model calls."""

    def __init__(self, result: Row, ended_at: float, with_experts: bool) -> None:
        self.nodes: list[Row] = []
        self.calls: list[Row] = []
        self._ended_at = ended_at
        self._with_experts = with_experts
        self._response = result["response"]
        output: list[Row] = self._response["output"]
        has_tokens = any(item.get(GENERATION_FIELD) for item in output)
        self._add_conversation(
            params_of(result, {}), output, self._tokens(Record.of(result)) if has_tokens else iter(())
        )
        for record in Record.branches_of(result):
            self._add_branch(record)

    def _add_conversation(self, params: Row, output: Sequence[Row], tokens: Iterator[Row]) -> None:
        given = prompt_of(params)
        if params.get("instructions"):
            given.insert(0, {"role": "system", "content": params["instructions"]})
        parent = None
        for turn in turns(given):
            parent = self._add(parent, message(turn))
        for turn in turns(output):
            if not is_models(turn[0]):
                parent = self._add(parent, message(turn))
                continue
            has_tokens = any(item.get(GENERATION_FIELD) for item in turn)
            parent = self._add(parent, message(turn), next(tokens) if has_tokens else {"usage": None})
        if self.calls and self.calls[-1]["usage"] is None:
            self.calls[-1]["usage"] = _usage(self._response.get("usage"))
        if self.calls and is_truncated(self._response):
            self.calls[-1]["finish_reason"] = "length"

    def _add_branch(self, record: Record) -> None:
        parent = None
        for tokens in self._tokens(record):
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

    def _tokens(self, record: Record) -> Iterator[Row]:
        """Yield the tokens of each call: those that its prompt adds, and those that were sampled."""
        experts = record.experts() if self._with_experts else None
        for added, generated in zip(record.spans[::2], record.spans[1::2], strict=True):
            num_sampled = generated.end - generated.start
            node = {
                "token_ids": record.token_ids[added.start : generated.end],
                "mask": [False] * (added.end - added.start) + [not record.mask] * num_sampled,
                "logprobs": [] if record.mask else record.log_probs[generated.start : generated.end],
                "usage": {"prompt_tokens": generated.start, "completion_tokens": num_sampled},
            }
            if experts is not None:
                node["routed_experts"] = _experts_of(experts, added.start, generated.end)
            yield node


def _experts_of(experts: Any, start: int, end: int) -> Row:
    """Return the experts of a node. As in verifiers, a last token that no call read has those of the one before it."""
    rows = experts[[min(at, len(experts) - 1) for at in range(start, end)]]
    return {"__nd__": True, "dtype": rows.dtype.name, "shape": list(rows.shape), "data": rows.tobytes()}


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
    return isinstance(value, float) or (isinstance(value, int) and abs(value) <= 2**53)  # a float has it exactly


def _without_null(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_null(one) for name, one in value.items() if one is not None}
    return [_without_null(one) for one in value] if isinstance(value, list) else value


# Reading --------------------------------------------------------------------------------------------------------------


def is_verifiers_episode(value: Mapping[str, Any]) -> bool:
    return isinstance(value.get("traces"), list) and isinstance(value.get("task"), dict) and "env" in value


def read_episode(value: Mapping[str, Any], where: str, index: int, repeats: dict[int, int]) -> Iterator[ForeignRollout]:
    """Yield the rollouts of an episode, one for each trace.

    Args:
        index: number of the line, where its task has none.
        repeats: how many rollouts of each task came before; counted here.

    Raises:
        JsonlError: a trace is not what it should be.
    """
    for position, trace in enumerate(value["traces"]):
        place = f"{where}: traces[{position}]"
        if not isinstance(trace, dict) or not isinstance(trace.get("nodes"), list):
            raise JsonlError(f"{place}: the trace has no list `nodes`")
        yield _rollout(value, trace, place, index, repeats)


def _rollout(
    episode: Mapping[str, Any], trace: Mapping[str, Any], where: str, index: int, repeats: dict[int, int]
) -> ForeignRollout:
    data = as_object(as_object(trace.get("task") or episode["task"]).get("data"))
    about = as_object(as_object(trace.get("info")).get("gymq"))
    task = index_or(about.get("task_index", data.get("idx")), index)
    repeats[task] = repeats.get(task, -1) + 1
    prompt, output = split_chat([chat_message(node["message"]) for node in _conversation(trace["nodes"], where)], where)
    rewards = [as_object(reward) for reward in as_object(trace.get("rewards")).values() if reward is not None]
    parts = [(number(reward.get("score")), number(reward.get("weight", 1.0))) for reward in rewards]
    errors = [*(trace.get("errors") or ()), *(episode.get("errors") or ())]
    is_scored = bool(parts) and trace.get("ok", True) is not False
    played_by = (as_object(episode.get("env")).get("id"), as_object(trace.get("agent")).get("name"))
    agent = as_object(_sent_row(data).get(AGENT_REF)).get("name") or "-".join(str(name) for name in played_by if name)
    return ForeignRollout(
        task_index=task,
        rollout_index=repeats[task],
        agent=str(agent),
        prompt=prompt,
        output=output,
        reward=sum(score * weight for score, weight in parts if score is not None and weight is not None)
        if is_scored
        else None,
        row=_row_of(data),
        verdict={
            name: found
            for name, value in as_object(trace.get("metrics")).items()
            if (found := number(value)) is not None
        },
        model=next((str(call["model"]) for call in trace.get("calls") or () if as_object(call).get("model")), ""),
        why_not="; ".join(str(as_object(error).get("message")) for error in errors[-1:]),
    )


def _sent_row(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row that a task of gymq is; nothing for a task of another program."""
    try:
        return as_object(json.loads(data["row"]))
    except (KeyError, TypeError, ValueError, RecursionError):
        return {}


def _row_of(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a task that a verifier may read: of one of gymq, its row's."""
    if row := _sent_row(data):
        return {name: value for name, value in row.items() if name not in (AGENT_REF, PARAMS)}
    return {name: value for name, value in data.items() if name not in _OF_EVERY_TASK}


def _conversation(nodes: Sequence[Any], where: str) -> list[Mapping[str, Any]]:
    """Return the nodes from the first message to the last one that says something; branches before it are left out."""
    path: list[Mapping[str, Any]] = []
    at = next((at for at in reversed(range(len(nodes))) if _says_something(nodes[at])), None)
    while at is not None:
        node = nodes[at]
        if not isinstance(node, dict) or not isinstance(node.get("message"), dict):
            raise JsonlError(f"{where}: nodes[{at}] has no `message`")
        path.append(node)
        parent = node.get("parent")
        if parent is not None and not (isinstance(parent, int) and 0 <= parent < at):
            raise JsonlError(f"{where}: nodes[{at}]: parent {parent!r} is not the number of a node before it")
        at = parent
    return path[::-1]


def _says_something(node: Any) -> bool:
    said = as_object(as_object(node).get("message"))
    return bool(said.get("content") or said.get("tool_calls") or said.get("reasoning_content"))


def _written(outcome: VerifiedRollout) -> dict[str, Any]:
    result = result_fields(outcome, "allow")
    task = task_of({"idx": outcome.task_index, "row": outcome.row.decode()})
    agent = {"model": outcome.response.get("model")}
    ended_at = float(outcome.response.get("created_at") or 0.0)
    trace = trace_of(result, task, agent, ended_at - outcome.duration_s, ended_at)
    return episode_of(task) | {"ok": True, "traces": [trace]}


EPISODES = Format(name="an episode of verifiers", is_it=is_verifiers_episode, read=read_episode, write=_written)
