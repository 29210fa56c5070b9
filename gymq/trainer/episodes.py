"""Samples as episodes of verifiers 0.4.0, https://github.com/PrimeIntellect-ai/verifiers.

The form of the messages is that of `verifiers/v1/serve/delta.py`.
"""

from __future__ import annotations

from gymq.protocol.messages import FailureClass
from gymq.runs.foreign.verifiers_traces import episode_of, trace_of
from gymq.trainer.groups import Row, Sample, SampleFailed

_OPENED = ("version", "id", "verifiers", "task")  # fields of a trace that are sent once, before all others


def failed_episode(task: Row, failed: SampleFailed) -> Row:
    """Return an episode that failed: an error, and neither a trace nor a reward."""
    error = {"type": failed.failure_class, "message": failed.message, "status_code": failed.status}
    is_timeout = failed.failure_class == FailureClass.DEADLINE_EXCEEDED
    return episode_of(task) | {"ok": False, "errors": [error], "is_timeout": is_timeout}


def episode(task: Row, sample: Sample, agent: Row, submitted_at: float, ended_at: float) -> tuple[Row, Row]:
    """Return an episode without its trace, and the message that carries the trace; arguments as in `trace_of`."""
    trace = trace_of(sample.result, task, agent, submitted_at, ended_at)
    opened = {name: trace.pop(name) for name in _OPENED}
    nodes, calls = trace.pop("nodes"), trace.pop("calls")
    delta = {"trace": opened["id"], "open": opened, "nodes": nodes, "calls": calls, "set": trace}
    return episode_of(task) | {"ok": True}, delta
