"""Requests of verifiers 0.4.0 as rows, and samples as its episodes: https://github.com/PrimeIntellect-ai/verifiers.

The form of the messages is that of `verifiers/v1/serve`; of episodes, of its `delta.py`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from gymq.data.rows import PARAMS
from gymq.ext.shared.trainer_rows import row_of_text, with_sampling
from gymq.ext.verifiers.traces import episode_of, trace_of
from gymq.protocol.messages import FailureClass
from gymq.trainer.examples import called
from gymq.trainer.groups import Group, Row, Sample

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
        UsageError: there is none.
    """
    row = row_of_text(request.task_data.get("row"), "task_data of the taskset gymq_rows")
    params = with_sampling(row[PARAMS], request.sampling)
    instructions = request.task_data.get("system_prompt")  # of prime-rl's configuration
    row[PARAMS] = params if instructions is None else params | {"instructions": instructions}
    return row


def failed_episode(task: Row, group: Group) -> Row:
    """Return an episode that failed: an error that names the row, and neither a trace nor a reward."""
    failed = group.failures[0]
    message = f"{called('the row', group.example)}: {failed.message}"
    error = {"type": failed.failure_class, "message": message, "status_code": failed.status}
    is_timeout = failed.failure_class == FailureClass.DEADLINE_EXCEEDED
    return episode_of(task) | {"ok": False, "errors": [error], "is_timeout": is_timeout}


def episode(task: Row, sample: Sample, agent: Row, submitted_at: float, ended_at: float) -> tuple[Row, Row]:
    """Return an episode without its trace, and the message that carries the trace; arguments as in `trace_of`."""
    trace = trace_of(sample.packed, task, agent, submitted_at, ended_at, with_experts=True)
    opened = {name: trace.pop(name) for name in _OPENED}
    nodes, calls = trace.pop("nodes"), trace.pop("calls")
    delta = {"trace": opened["id"], "open": opened, "nodes": nodes, "calls": calls, "set": trace}
    return episode_of(task) | {"ok": True}, delta
