"""Spans by OpenTelemetry, where it is installed and set up; else nothing.

The application, or `opentelemetry-instrument`, sets it up. A span continues the trace that the message carries, and
what is put within it carries the span on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from penstock.engines.contract import Delivery
from penstock.telemetry.tracing import TRACEPARENT, TRACESTATE, current_trace, read_trace


class OpenSpan:
    """The span of what is handled now."""

    def __init__(self, trace: Any, span: Any) -> None:
        self._trace = trace
        self._span = span

    def failed(self, reason: str) -> None:
        """It failed, in a line."""
        self._span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, reason))


class Spans:
    """Made by `spans()`."""

    def __init__(self) -> None:
        from opentelemetry import trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._trace: Any = trace
        self._propagator = TraceContextTextMapPropagator()
        self._tracer = trace.get_tracer("penstock")

    @contextmanager
    def processing(self, queue: str, deliveries: Sequence[Delivery]) -> Iterator[OpenSpan]:
        """A span around the handling of these."""
        first = deliveries[0]
        attributes: dict[str, Any] = {
            "messaging.system": "penstock",
            "messaging.operation.type": "process",
            "messaging.destination.name": queue,
            "messaging.batch.message_count": len(deliveries),
        }
        parent = None
        if len(deliveries) == 1:
            attributes |= {"messaging.message.id": first.message_id}
            parent = self._propagator.extract(_carried(first))
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


def _carried(delivery: Delivery) -> dict[str, str]:
    return {
        name: value for name in (TRACEPARENT, TRACESTATE) if isinstance(value := delivery.attributes.get(name), str)
    }


def spans() -> Spans | None:
    """Spans, if OpenTelemetry is there and somebody has set up more than its own nothing."""
    if find_spec("opentelemetry") is None:
        return None
    from opentelemetry import trace

    return None if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider) else Spans()
