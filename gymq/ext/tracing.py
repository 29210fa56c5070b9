"""Traces over OTLP, OpenTelemetry's protocol; its own variables, as `OTEL_EXPORTER_OTLP_ENDPOINT`, say where to.

The id of a trace is derived from the rollout's name, so a rollout that another process resumes stays one trace.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from gymq.errors import GymqError
from gymq.redaction import redact

if TYPE_CHECKING:
    from opentelemetry.trace import Span

_trace_id: ContextVar[int | None] = ContextVar("gymq_trace_id", default=None)


def trace_id(rollout: str) -> int:
    """Return the id of the trace of a rollout.

    Args:
        rollout: "run/task/rollout".
    """
    return int.from_bytes(hashlib.blake2b(rollout.encode(), digest_size=16).digest())


class OpenTelemetry:
    """Sends the spans of a process, from when it is made.

    Args:
        process: id of the worker, or what the process is.

    Raises:
        GymqError: OpenTelemetry is not installed.
    """

    def __init__(self, process: str) -> None:
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
            from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
        except ImportError:
            raise GymqError("OTEL_TRACES_EXPORTER=otlp needs a package: pip install 'gymq[observability]'") from None

        class Ids(RandomIdGenerator):
            def generate_trace_id(self) -> int:
                return _trace_id.get() or super().generate_trace_id()

        resource = Resource.create({"service.name": "gymq", "service.instance.id": process})
        self._provider = TracerProvider(resource=resource, id_generator=Ids())
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("gymq")

    def stop(self) -> None:
        """Send what is left."""
        self._provider.shutdown()

    def headers(self) -> dict[str, str] | None:
        """Return the headers with which the receiver of a request continues the trace."""
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        carrier: dict[str, str] = {}
        TraceContextTextMapPropagator().inject(carrier)
        return carrier or None

    @contextmanager
    def rollout(self, name: str, attributes: dict[str, Any]) -> Iterator[Span]:
        """Trace the work on a rollout as a span."""
        from opentelemetry.context import Context

        wanted = _trace_id.set(trace_id(name))
        try:
            prefixed = {f"gymq.{key}": value for key, value in attributes.items()}
            with self._span("rollout", {"gymq.rollout": name, **prefixed}, "INTERNAL", Context()) as span:
                yield span
        finally:
            _trace_id.reset(wanted)

    @contextmanager
    def call(self, name: str, subject: str) -> Iterator[Span | None]:
        """Trace a request as a span, if it is part of something that is traced."""
        from opentelemetry import trace

        if not trace.get_current_span().get_span_context().is_valid:
            yield None
            return
        with self._span(name, {"messaging.destination.name": subject}, "CLIENT", None) as span:
            yield span

    @contextmanager
    def served(self, name: str, rollout: str, parent: str) -> Iterator[Span]:
        """Trace the answering of a request as a span."""
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        context = TraceContextTextMapPropagator().extract({"traceparent": parent})
        with self._span(name, {"gymq.rollout": rollout}, "SERVER", context) as span:
            yield span

    @contextmanager
    def _span(self, name: str, attributes: dict[str, Any], kind: str, context: Any) -> Iterator[Span]:
        from opentelemetry.trace import SpanKind, Status, StatusCode

        # The text of an exception may hold credentials, so it is recorded here and not by the library.
        with self._tracer.start_as_current_span(
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
