"""Spans by OpenTelemetry: a message's handling is a span of its trace, and what it puts carries that span on."""

from __future__ import annotations

import pytest
from opentelemetry import trace
from opentelemetry.sdk import trace as sdk
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from penstock.engines.contract import Delivery
from penstock.telemetry.spans import Spans, spans
from penstock.telemetry.tracing import with_trace

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"


def delivery(number: int, **attributes: str) -> Delivery:
    """A delivery with these attributes."""
    return Delivery(f"m{number}", b"", attributes, None, 1, 0, 0, 1, 0, "r")


@pytest.fixture
def finished(monkeypatch: pytest.MonkeyPatch) -> list[sdk.ReadableSpan]:
    """The spans that were ended, of a provider of this test's own."""

    class Kept(InMemorySpanExporter):
        def export(self, spans: object) -> object:  # type: ignore[override]
            ended.extend(spans)  # type: ignore[arg-type]
            return super().export(spans)  # type: ignore[arg-type]

    ended: list[sdk.ReadableSpan] = []
    provider = sdk.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(Kept()))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    return ended


def test_a_span_continues_the_trace_of_the_message_and_what_is_put_continues_the_span(
    finished: list[sdk.ReadableSpan],
) -> None:
    made = spans()
    assert isinstance(made, Spans)
    with made.processing("shop/emails", [delivery(1, traceparent=PARENT, tracestate="a=b")]):
        carried = with_trace({})
    (span,) = finished
    assert span.context is not None and span.parent is not None
    assert (TRACE, "b7ad6b7169203331") == (f"{span.context.trace_id:032x}", f"{span.parent.span_id:016x}")
    assert {"traceparent": f"00-{TRACE}-{span.context.span_id:016x}-01", "tracestate": "a=b"} == carried
    assert ("process shop/emails", "CONSUMER") == (span.name, span.kind.name)
    assert "m1" == (span.attributes or {})["messaging.message.id"]


def test_a_batch_is_one_span_of_its_own_trace(finished: list[sdk.ReadableSpan]) -> None:
    made = spans()
    assert made is not None
    with made.processing("shop/emails", [delivery(1, traceparent=PARENT), delivery(2)]):
        pass
    (span,) = finished
    assert span.parent is None
    assert 2 == (span.attributes or {})["messaging.batch.message_count"]


def test_a_failure_is_seen_in_its_span(finished: list[sdk.ReadableSpan]) -> None:
    made = spans()
    assert made is not None
    with made.processing("shop/emails", [delivery(1)]) as span:
        span.failed("ValueError: boom")
    status = finished[0].status
    assert ("ERROR", "ValueError: boom") == (status.status_code.name, status.description)


def test_where_nobody_has_set_it_up_there_are_no_spans() -> None:
    assert spans() is None
