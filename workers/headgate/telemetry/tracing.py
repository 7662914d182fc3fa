"""W3C trace context (level 1) on messages: the attributes `traceparent` and `tracestate`.

A message's trace is that of its handler, of the handler's log lines, and of every message that the handler puts.
Where OpenTelemetry has a current span, a put carries that span instead. `spans.py` starts spans; this module only
reads and writes contexts, and works without OpenTelemetry. It ignores a context that is not valid.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from sys import modules
from typing import Any

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
    """Whether OpenTelemetry has a current span."""
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
