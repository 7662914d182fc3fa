"""Spans by OpenTelemetry, where it is installed and set up; else nothing.

The application, or `opentelemetry-instrument`, configures it. A put within a span is a span of kind producer, whose
context its messages carry. The span of a handler continues that trace, and the handler's own puts pass it on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, Protocol

from headgate.telemetry.tracing import TRACEPARENT, TRACESTATE, current_trace, is_in_span, read_trace


class Traceable(Protocol):
    """What a span needs of a delivery."""

    @property
    def message_id(self) -> str: ...

    @property
    def attributes(self) -> Mapping[str, object]: ...


class OpenSpan:
    """The span of the current handler."""

    def __init__(self, trace: Any, span: Any) -> None:
        self._trace = trace
        self._span = span

    def failed(self, reason: str) -> None:
        """It failed, in a line."""
        self._span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, reason))


class SentSpan:
    """The span of a put."""

    def __init__(self, trace: Any, span: Any) -> None:
        self._trace = trace
        self._span = span

    def sent(self, message_ids: Sequence[str]) -> None:
        """The messages that were put. A span has room for one id."""
        if len(message_ids) == 1:
            self._span.set_attribute("messaging.message.id", message_ids[0])

    def failed(self, reason: str) -> None:
        """Some messages are not put."""
        self._span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, reason))


class Spans:
    """Created by `spans()`, and by `producer_spans()`."""

    def __init__(self) -> None:
        from opentelemetry import trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._trace: Any = trace
        self._propagator = TraceContextTextMapPropagator()
        self._tracer = trace.get_tracer("headgate")

    @contextmanager
    def sending(self, queue: str, count: int) -> Iterator[SentSpan]:
        """A span around a put of this number of messages. An exception ends it as failed."""
        attributes: dict[str, Any] = {
            "messaging.system": "headgate",
            "messaging.operation.type": "send",
            "messaging.destination.name": queue,
            "messaging.batch.message_count": count,
        }
        with self._tracer.start_as_current_span(
            f"send {queue}", kind=self._trace.SpanKind.PRODUCER, attributes=attributes
        ) as span:
            yield SentSpan(self._trace, span)

    @contextmanager
    def processing(self, queue: str, deliveries: Sequence[Traceable]) -> Iterator[OpenSpan]:
        """A span around the handling of these."""
        first = deliveries[0]
        attributes: dict[str, Any] = {
            "messaging.system": "headgate",
            "messaging.operation.type": "process",
            "messaging.destination.name": queue,
            "messaging.batch.message_count": len(deliveries),
        }
        parent = None
        if len(deliveries) == 1:
            attributes |= {"messaging.message.id": first.message_id}
            parent = self._propagator.extract(_trace_attributes(first))
        with self._tracer.start_as_current_span(
            f"process {queue}", context=parent, kind=self._trace.SpanKind.CONSUMER, attributes=attributes
        ) as span:
            carrier: dict[str, str] = {}
            self._propagator.inject(carrier)
            token = current_trace.set(read_trace(carrier) or current_trace.get())
            try:
                yield OpenSpan(self._trace, span)
            finally:
                current_trace.reset(token)


def _trace_attributes(delivery: Traceable) -> dict[str, str]:
    return {
        name: value for name in (TRACEPARENT, TRACESTATE) if isinstance(value := delivery.attributes.get(name), str)
    }


def spans() -> Spans | None:
    """Spans, if OpenTelemetry is installed and configured beyond its default no-op."""
    if find_spec("opentelemetry") is None:
        return None
    from opentelemetry import trace

    return None if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider) else Spans()


_last: tuple[object, Spans] | None = None
"""The provider of the last put, and its spans: creating a tracer costs more than a put's span."""


def producer_spans() -> Spans | None:
    """Spans for a put; None where OpenTelemetry has no current span, so that a put alone starts no trace."""
    global _last  # noqa: PLW0603  one provider a process, which may be set up later than the first put
    if not is_in_span():
        return None
    from opentelemetry import trace

    provider = trace.get_tracer_provider()
    if _last is None or _last[0] is not provider:
        _last = (provider, Spans())
    return _last[1]
