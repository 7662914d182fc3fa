"""W3C trace context (level 1) on messages: the attributes `traceparent` and `tracestate`.

A message's trace is that of its handler, of the handler's log lines, and of every message that the handler puts.
Where OpenTelemetry has a current span, a put carries that span instead. Contexts are read and written also without
OpenTelemetry. One that is not valid is ignored.

Spans are started where OpenTelemetry is installed and set up, by the application or by `opentelemetry-instrument`. A
put within a span is a span of kind producer, whose context its messages carry. The span of a handler continues that
trace, and the handler's own puts pass it on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from importlib.util import find_spec
from sys import modules
from typing import Any, Protocol

TRACEPARENT = "traceparent"
TRACESTATE = "tracestate"
STATE_LENGTH_MAX = 512

_PARENT = re.compile(
    r"(?P<version>[0-9a-f]{2})-(?P<trace>[0-9a-f]{32})-(?P<span>[0-9a-f]{16})-[0-9a-f]{2}(?P<more>-.*)?"
)


@dataclass(frozen=True, slots=True)
class TraceContext:
    """Where in a trace something happens."""

    traceparent: str
    trace_id: str
    span_id: str
    tracestate: str | None = None


current_trace: ContextVar[TraceContext | None] = ContextVar("headgate_current_trace", default=None)
"""Of the message that is being handled."""


def read_trace(attributes: Mapping[str, str | bytes]) -> TraceContext | None:
    """The trace context of a message, if it is valid."""
    parent = attributes.get(TRACEPARENT)
    if not isinstance(parent, str):
        return None
    match = _PARENT.fullmatch(parent.strip())
    if match is None or match["version"] == "ff" or (match["version"] == "00" and match["more"]):
        return None
    if not int(match["trace"], 16) or not int(match["span"], 16):
        return None
    state = attributes.get(TRACESTATE)
    fit = isinstance(state, str) and 0 < len(state) <= STATE_LENGTH_MAX and state.isascii() and state.isprintable()
    return TraceContext(parent.strip(), match["trace"], match["span"], str(state) if fit else None)


def is_traced() -> bool:
    """Whether this put belongs to a trace. Every put checks it, so it costs next to nothing without OpenTelemetry."""
    return current_trace.get() is not None or (_API in modules and _current_span() is not None)


def is_in_span() -> bool:
    return _API in modules and _current_span() is not None


_API = "opentelemetry.trace"
"""An application that configured OpenTelemetry has imported this."""


def _current_span() -> Any | None:
    """The context of OpenTelemetry's current span, if it is valid. Outside of every span its own context is empty,
    which is quicker to see than that there is no span."""
    try:
        if not modules["opentelemetry.context"].get_current():
            return None
        context = modules[_API].get_current_span().get_span_context()
    except (AttributeError, KeyError):  # another thread is importing it
        return None
    return context if context.is_valid else None


def _trace_to_carry() -> TraceContext | None:
    context = _current_span()
    if context is None:
        return current_trace.get()
    trace_id, span_id = f"{context.trace_id:032x}", f"{context.span_id:016x}"
    state = context.trace_state.to_header()
    fit = 0 < len(state) <= STATE_LENGTH_MAX
    return TraceContext(
        f"00-{trace_id}-{span_id}-{context.trace_flags:02x}", trace_id, span_id, state if fit else None
    )


def with_trace(attributes: Mapping[str, str | bytes]) -> Mapping[str, str | bytes]:
    """The attributes of a message to put, with the current trace. A `traceparent` that they have already stays."""
    trace = _trace_to_carry() if _API in modules else current_trace.get()
    if trace is None or TRACEPARENT in attributes:
        return attributes
    carrier = {TRACEPARENT: trace.traceparent}
    if trace.tracestate is not None:
        carrier[TRACESTATE] = trace.tracestate
    return {**attributes, **carrier}


# ---- spans


class Traceable(Protocol):
    """What a span needs of a delivery."""

    @property
    def message_id(self) -> str: ...

    @property
    def attributes(self) -> Mapping[str, object]: ...


class OpenSpan:
    """The span of a put or of a handler."""

    def __init__(self, trace: Any, span: Any) -> None:
        self._trace = trace
        self._span = span

    def sent(self, message_ids: Sequence[str]) -> None:
        """The messages that were put. A span has room for one id."""
        if len(message_ids) == 1:
            self._span.set_attribute("messaging.message.id", message_ids[0])

    def failed(self, reason: str) -> None:
        """The handler failed, or some messages are not put."""
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
    def sending(self, queue: str, count: int) -> Iterator[OpenSpan]:
        """A span around a put of this number of messages. An exception ends it as failed."""
        attributes = _attributes_of("send", queue, count)
        with self._tracer.start_as_current_span(
            f"send {queue}", kind=self._trace.SpanKind.PRODUCER, attributes=attributes
        ) as span:
            yield OpenSpan(self._trace, span)

    @contextmanager
    def processing(self, queue: str, deliveries: Sequence[Traceable]) -> Iterator[OpenSpan]:
        """A span around the handling of these."""
        first = deliveries[0]
        attributes = _attributes_of("process", queue, len(deliveries))
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


def _attributes_of(operation: str, queue: str, count: int) -> dict[str, Any]:
    return {
        "messaging.system": "headgate",
        "messaging.operation.type": operation,
        "messaging.destination.name": queue,
        "messaging.batch.message_count": count,
    }


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
