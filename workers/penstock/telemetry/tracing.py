"""W3C trace context (level 1) on messages: the attributes `traceparent` and `tracestate`.

What a message carries is taken into the context of whoever handles it, into his log lines, and onto what he puts.
Penstock starts no spans of its own: it hands on what it was given, so the trace stays whole for those who record.
Where OpenTelemetry is installed and set up, `spans.py` does it by that. What is not valid is as if it were not there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass

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


current_trace: ContextVar[TraceContext | None] = ContextVar("penstock_current_trace", default=None)
"""Of the message that is being handled."""


def read_trace(attributes: Mapping[str, str | bytes]) -> TraceContext | None:
    """What a message carries, if it is valid."""
    parent = attributes.get(TRACEPARENT)
    if not isinstance(parent, str):
        return None
    found = _PARENT.fullmatch(parent.strip())
    if found is None or found["version"] == "ff" or (found["version"] == "00" and found["more"]):
        return None
    if not int(found["trace"], 16) or not int(found["span"], 16):
        return None
    state = attributes.get(TRACESTATE)
    fit = isinstance(state, str) and 0 < len(state) <= STATE_LENGTH_MAX and state.isascii() and state.isprintable()
    return TraceContext(parent.strip(), found["trace"], found["span"], str(state) if fit else None)


def with_trace(attributes: Mapping[str, str | bytes]) -> Mapping[str, str | bytes]:
    """The attributes of what is put, carrying on the trace of what is being handled; what they have already stays."""
    trace = current_trace.get()
    if trace is None or TRACEPARENT in attributes:
        return attributes
    carried = {TRACEPARENT: trace.traceparent}
    if trace.tracestate is not None:
        carried[TRACESTATE] = trace.tracestate
    return {**attributes, **carried}
