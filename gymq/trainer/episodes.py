"""Requests of verifiers 0.4.0 as rows, and samples as its episodes: https://github.com/PrimeIntellect-ai/verifiers.

The form of the messages is that of `verifiers/v1/serve`; of episodes, of its `delta.py`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from gymq.data.jsonl import parse_object
from gymq.data.rows import PARAMS
from gymq.data.short_rows import whole_row
from gymq.protocol.messages import FailureClass
from gymq.runs.foreign.verifiers_traces import episode_of, trace_of
from gymq.trainer.groups import Row, Sample, SampleFailed, TrainerError
from gymq.trainer.sampling_params import with_sampling

_OPENED = ("version", "id", "verifiers", "task")  # fields of a trace that are sent once, before all others


class Client(msgspec.Struct):
    type: str = "eval"  # `train` if its episodes are trained on


class RunRequest(msgspec.Struct):
    """A request for a rollout. The endpoint that it names is not asked: the cluster's model answers."""

    task_data: dict[str, Any]
    client: Client
    model: str
    sampling: dict[str, Any]


class CancelRequest(msgspec.Struct):
    request_id: str


def row_of(request: RunRequest) -> Row:
    """Return the row of a request, with its sampling parameters.

    Raises:
        TrainerError, JsonlError, RowError, msgspec.MsgspecError: there is none.
    """
    text = request.task_data.get("row")
    if not isinstance(text, str):
        raise TrainerError("task_data.row must be the text of a row, as the taskset gymq_rows sends it")
    row: Row = dict(parse_object(whole_row(text.encode())))
    params = with_sampling(msgspec.json.decode(row[PARAMS], type=dict[str, Any]), request.sampling)
    instructions = request.task_data.get("system_prompt")  # of prime-rl's configuration
    row[PARAMS] = params if instructions is None else params | {"instructions": instructions}
    return row


def failed_episode(task: Row, failed: SampleFailed) -> Row:
    """Return an episode that failed: an error, and neither a trace nor a reward."""
    error = {"type": failed.failure_class, "message": failed.message, "status_code": failed.status}
    is_timeout = failed.failure_class == FailureClass.DEADLINE_EXCEEDED
    return episode_of(task) | {"ok": False, "errors": [error], "is_timeout": is_timeout}


def episode(task: Row, sample: Sample, agent: Row, submitted_at: float, ended_at: float) -> tuple[Row, Row]:
    """Return an episode without its trace, and the message that carries the trace; arguments as in `trace_of`."""
    trace = trace_of(sample.packed, task, agent, submitted_at, ended_at, with_experts=True)
    opened = {name: trace.pop(name) for name in _OPENED}
    nodes, calls = trace.pop("nodes"), trace.pop("calls")
    delta = {"trace": opened["id"], "open": opened, "nodes": nodes, "calls": calls, "set": trace}
    return episode_of(task) | {"ok": True}, delta
