"""Traces in OpenTelemetry's form: one a rollout, across all processes that work on it.

Off unless the environment says `OTEL_TRACES_EXPORTER=otlp`; OpenTelemetry's own variables, such as
`OTEL_EXPORTER_OTLP_ENDPOINT`, set where spans go. While it is off a call costs a comparison, and no message carries
anything more.

The id of a trace is derived from the rollout's name, so a rollout that another process resumes stays one trace. The
caller's identity travels in the header `traceparent` of a request, as W3C's Trace Context has it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from gymq.errors import GymqError
from gymq.redaction import redact

if TYPE_CHECKING:
    from opentelemetry.trace import Span

EXPORTER = "OTEL_TRACES_EXPORTER"
NEEDS = f"{EXPORTER}=otlp needs a package: pip install 'gymq[observability]'"

_tracer: Any = None
_provider: Any = None
_trace_id: ContextVar[int | None] = ContextVar("gymq_trace_id", default=None)
_OFF: AbstractContextManager[None] = nullcontext()


def is_wanted() -> bool:
    """Return whether the environment asks for traces."""
    return os.environ.get(EXPORTER, "") == "otlp"


def start(process: str) -> None:
    """Send spans from now on, if the environment asks for it.

    Args:
        process: id of the worker, or what the process is.

    Raises:
        GymqError: OpenTelemetry is not installed.
    """
    global _tracer, _provider
    if not is_wanted():
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
    except ImportError:
        raise GymqError(NEEDS) from None

    class Ids(RandomIdGenerator):
        def generate_trace_id(self) -> int:
            return _trace_id.get() or super().generate_trace_id()

    resource = Resource.create({"service.name": "gymq", "service.instance.id": process})
    _provider = TracerProvider(resource=resource, id_generator=Ids())
    _provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    _tracer = _provider.get_tracer("gymq")


def stop() -> None:
    """Send what is left."""
    global _tracer, _provider
    if _provider is not None:
        _provider.shutdown()
    _tracer = _provider = None


def trace_id(rollout: str) -> int:
    """Return the id of the trace of a rollout.

    Args:
        rollout: "run/task/rollout".
    """
    return int.from_bytes(hashlib.blake2b(rollout.encode(), digest_size=16).digest())


def rollout(name: str, **attributes: Any) -> AbstractContextManager[Span | None]:
    """Trace the work on a rollout in this process as a span.

    Args:
        name: "run/task/rollout".
    """
    return _OFF if _tracer is None else _rollout(name, attributes)


def call(name: str, subject: str) -> AbstractContextManager[Span | None]:
    """Trace a request as a span, if it is part of something that is traced."""
    return _OFF if _tracer is None else _call(name, subject)


def served(name: str, rollout: str, parent: str) -> AbstractContextManager[Span | None]:
    """Trace the answering of a request as a span, if its caller sent `headers`.

    Args:
        parent: the caller's `traceparent`, or nothing.
    """
    return _OFF if _tracer is None or not parent else _served(name, rollout, parent)


def headers() -> dict[str, str] | None:
    """Return the headers with which the receiver of a request continues the trace; None: nothing is traced."""
    if _tracer is None:
        return None
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier or None


@contextmanager
def _rollout(name: str, attributes: dict[str, Any]) -> Iterator[Span]:
    from opentelemetry.context import Context

    wanted = _trace_id.set(trace_id(name))
    try:
        prefixed = {f"gymq.{key}": value for key, value in attributes.items()}
        with _span("rollout", {"gymq.rollout": name, **prefixed}, "INTERNAL", Context()) as span:
            yield span
    finally:
        _trace_id.reset(wanted)


@contextmanager
def _call(name: str, subject: str) -> Iterator[Span | None]:
    from opentelemetry import trace

    if not trace.get_current_span().get_span_context().is_valid:
        yield None
        return
    with _span(name, {"messaging.destination.name": subject}, "CLIENT", None) as span:
        yield span


@contextmanager
def _served(name: str, rollout: str, parent: str) -> Iterator[Span]:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    context = TraceContextTextMapPropagator().extract({"traceparent": parent})
    with _span(name, {"gymq.rollout": rollout}, "SERVER", context) as span:
        yield span


@contextmanager
def _span(name: str, attributes: dict[str, Any], kind: str, context: Any) -> Iterator[Span]:
    from opentelemetry.trace import SpanKind, Status, StatusCode

    # The text of an exception may hold credentials, so it is recorded here and not by the library.
    with _tracer.start_as_current_span(
        name,
        context=context,
        kind=SpanKind[kind],
        attributes=attributes,
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield span
        except BaseException as error:
            span.set_status(Status(StatusCode.ERROR, redact(f"{type(error).__name__}: {error}")[:300]))
            raise
