"""Spans by OpenTelemetry: a put is a span of its caller's trace, and a message's handling is a span of the put's."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk import trace as sdk
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from headgate.client.model.outgoing import Put, message_of
from headgate.client.queue import Queue
from headgate.client.sync.background import BackgroundLoop
from headgate.engines.contract import Delivery, NewMessage
from headgate.errors import HeadgateError, InvalidRequest
from headgate.store.model.deadline import Deadline
from headgate.store.store import OutcomeUnknown
from headgate.telemetry.tracing import Spans, current_trace, read_trace, spans, with_trace
from tests.kit.worker_queue import FaultyQueue
from tests.unit.runtime.workers import bench_of, in_virtual_time, worked

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
        supported = with_trace({})
    (span,) = finished
    assert span.context is not None and span.parent is not None
    assert (TRACE, "b7ad6b7169203331") == (f"{span.context.trace_id:032x}", f"{span.parent.span_id:016x}")
    assert {"traceparent": f"00-{TRACE}-{span.context.span_id:016x}-01", "tracestate": "a=b"} == supported
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


# ---- putting


class KeptQueue(FaultyQueue):
    """A queue in memory that keeps what was put, and refuses what a test wants refused."""

    def __init__(self) -> None:
        super().__init__("shop/emails")
        self.put_local: list[NewMessage] = []
        self.refuse_with: HeadgateError | None = None

    async def put(self, messages: Sequence[NewMessage], *, deadline: Deadline | None = None) -> list[str]:
        if self.refuse_with is not None:
            raise self.refuse_with
        self.put_local += messages
        return await super().put(messages)


def queue_on(engine: KeptQueue) -> Queue:
    """The SDK's queue on an engine in memory."""
    upkeep: Any = SimpleNamespace(require_usable=lambda: None, now_us=lambda: 0, batches=None)
    result: Any = SimpleNamespace(settings=SimpleNamespace(name=engine.name))
    stand_in: Any = engine
    return Queue(result, stand_in, upkeep, result)


def traceparent_of(span: sdk.ReadableSpan) -> str:
    """The span as a message names it."""
    assert span.context is not None
    return named(span.context)


def parent_of(span: sdk.ReadableSpan) -> str:
    """The same of the span's parent."""
    assert span.parent is not None
    return named(span.parent)


def named(context: trace.SpanContext) -> str:
    """A span's context as W3C writes it."""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


PUTS: list[Callable[[Queue], Awaitable[object]]] = [
    lambda queue: queue.put(b"hello"),
    lambda queue: queue.put({"to": "ann"}),
    lambda queue: queue.put(b"hello", group="g"),
    lambda queue: queue.put_many([b"hello"]),
]


@pytest.mark.parametrize("put", PUTS)
def test_a_web_request_its_put_and_the_handling_are_one_trace(
    finished: list[sdk.ReadableSpan], put: Callable[[Queue], Awaitable[object]]
) -> None:
    async def scenario() -> None:
        engine = KeptQueue()

        async def send(payload: bytes) -> None:
            return

        with trace.get_tracer("web").start_as_current_span("POST /signup"):
            await put(queue_on(engine))
        bench = bench_of(send, queue=engine, spans=spans())
        await worked(bench)

    in_virtual_time(scenario)
    by_name = {each.name: each for each in finished}
    assert {"POST /signup", "send shop/emails", "process shop/emails"} == set(by_name)
    web, sent, handled = (by_name[name] for name in ("POST /signup", "send shop/emails", "process shop/emails"))
    assert (traceparent_of(web), traceparent_of(sent)) == (parent_of(sent), parent_of(handled))
    assert ("PRODUCER", (handled.attributes or {})["messaging.message.id"], 1) == (
        sent.kind.name,
        (sent.attributes or {})["messaging.message.id"],
        (sent.attributes or {})["messaging.batch.message_count"],
    )


async def put_in_span(engine: KeptQueue, payload: object, **options: Any) -> None:
    """Put within the span of a web request."""
    with trace.get_tracer("web").start_as_current_span("POST /signup"):
        await queue_on(engine).put(payload, **options)


def test_a_traceparent_of_the_callers_own_stays(finished: list[sdk.ReadableSpan]) -> None:
    engine = KeptQueue()
    asyncio.run(put_in_span(engine, b"", attributes={"traceparent": PARENT}))
    assert [{"traceparent": PARENT}] == [each.attributes for each in engine.put_local]
    assert ["send shop/emails", "POST /signup"] == [each.name for each in finished]


def test_the_tracestate_of_the_current_span_is_put_too(finished: list[sdk.ReadableSpan]) -> None:
    engine = KeptQueue()
    made = spans()
    assert made is not None
    with made.processing("shop/orders", [delivery(1, traceparent=PARENT, tracestate="a=b")]):
        asyncio.run(queue_on(engine).put(b""))
    sent = finished[0]
    assert [{"traceparent": traceparent_of(sent), "tracestate": "a=b"}] == [
        each.attributes for each in engine.put_local
    ]


def test_without_a_current_span_a_put_makes_none_and_writes_no_attributes(
    finished: list[sdk.ReadableSpan],
) -> None:
    engine = KeptQueue()
    asyncio.run(queue_on(engine).put(b"hello"))
    asyncio.run(queue_on(engine).put_many([b"hello"]))
    assert ([], [{}, {}]) == (finished, [each.attributes for each in engine.put_local])


@pytest.mark.parametrize(
    ("refusal", "payload"),
    [(OutcomeUnknown("no answer"), b""), (None, object())],
    ids=["by the store", "of the payload"],
)
def test_a_put_that_fails_is_seen_in_its_span(
    finished: list[sdk.ReadableSpan], refusal: HeadgateError | None, payload: object
) -> None:
    engine = KeptQueue()
    engine.refuse_with = refusal
    with pytest.raises((OutcomeUnknown, InvalidRequest)):
        asyncio.run(put_in_span(engine, payload))
    assert ("send shop/emails", "ERROR") == (finished[0].name, finished[0].status.status_code.name)


def test_what_is_added_to_a_batch_carries_the_current_span(finished: list[sdk.ReadableSpan]) -> None:
    with trace.get_tracer("web").start_as_current_span("POST /signup"):
        message = message_of(Put(b""), 0)
    (web,) = finished
    assert {"traceparent": traceparent_of(web)} == message.attributes


def test_a_put_without_async_is_in_the_trace_of_the_thread_that_called(finished: list[sdk.ReadableSpan]) -> None:
    engine = KeptQueue()
    loop = BackgroundLoop("test: puts")
    try:
        with trace.get_tracer("web").start_as_current_span("POST /signup"):
            loop.run(queue_on(engine).put(b"hello"))
    finally:
        loop.stop()
    sent, web = finished
    assert traceparent_of(web) == parent_of(sent)
    assert [{"traceparent": traceparent_of(sent)}] == [each.attributes for each in engine.put_local]


def test_bytes_that_a_handler_puts_carry_its_trace_without_opentelemetry_too() -> None:
    engine = KeptQueue()
    token = current_trace.set(read_trace({"traceparent": PARENT}))
    try:
        asyncio.run(queue_on(engine).put(b"hello"))
    finally:
        current_trace.reset(token)
    assert [{"traceparent": PARENT}] == [each.attributes for each in engine.put_local]


def test_a_producer_does_not_load_opentelemetry() -> None:
    program = "import sys, headgate.client.queue; print('opentelemetry' in sys.modules)"
    assert b"False\n" == subprocess.check_output([sys.executable, "-c", program])
