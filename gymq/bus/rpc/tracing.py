"""One trace a rollout, across all processes that work on it; a package beside the core sends them.

Off unless the environment says `OTEL_TRACES_EXPORTER=otlp`. While it is off a call costs a comparison, and no message
carries anything more. The caller's identity travels in the header `traceparent` of a request, as W3C's Trace Context
has it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from gymq.errors import GymqError
from gymq.extensions import extensions

EXPORTER = "OTEL_TRACES_EXPORTER"


class TraceSpan(Protocol):
    """What is traced."""

    def set_attributes(self, attributes: Mapping[str, str | float | int]) -> None:
        """Add what is known of it."""


class Tracer(Protocol):
    """What the entry point `gymq.tracing` makes of the id of a process."""

    def rollout(self, name: str, attributes: dict[str, Any]) -> AbstractContextManager[TraceSpan]:
        """Trace the work on a rollout as a span."""

    def call(self, name: str, subject: str) -> AbstractContextManager[TraceSpan | None]:
        """Trace a request as a span, if it is part of something that is traced."""

    def served(self, name: str, rollout: str, parent: str) -> AbstractContextManager[TraceSpan]:
        """Trace the answering of a request as a span."""

    def headers(self) -> dict[str, str] | None:
        """Return the headers with which the receiver of a request continues the trace."""

    def stop(self) -> None:
        """Send what is left."""


_tracer: Tracer | None = None
_OFF: AbstractContextManager[None] = nullcontext()


def is_wanted() -> bool:
    """Return whether the environment asks for traces."""
    return os.environ.get(EXPORTER, "") == "otlp"


def start(process: str) -> None:
    """Send spans from now on, if the environment asks for it.

    Args:
        process: id of the worker, or what the process is.

    Raises:
        GymqError: what sends them is not installed.
    """
    global _tracer
    if not is_wanted():
        return
    for found in extensions("tracing"):
        _tracer = found.load()(process)
        return
    raise GymqError(f"{EXPORTER}=otlp: no package has the entry point gymq.tracing")


def stop() -> None:
    """Send what is left."""
    global _tracer
    if _tracer is not None:
        _tracer.stop()
    _tracer = None


def rollout(name: str, **attributes: Any) -> AbstractContextManager[TraceSpan | None]:
    """Trace the work on a rollout in this process as a span.

    Args:
        name: "run/task/rollout".
    """
    return _OFF if _tracer is None else _tracer.rollout(name, attributes)


def call(name: str, subject: str) -> AbstractContextManager[TraceSpan | None]:
    """Trace a request as a span, if it is part of something that is traced."""
    return _OFF if _tracer is None else _tracer.call(name, subject)


def served(name: str, rollout: str, parent: str) -> AbstractContextManager[TraceSpan | None]:
    """Trace the answering of a request as a span, if its caller sent `headers`.

    Args:
        parent: the caller's `traceparent`, or nothing.
    """
    return _OFF if _tracer is None or not parent else _tracer.served(name, rollout, parent)


def headers() -> dict[str, str] | None:
    """Return the headers with which the receiver of a request continues the trace; None: nothing is traced."""
    return None if _tracer is None else _tracer.headers()
