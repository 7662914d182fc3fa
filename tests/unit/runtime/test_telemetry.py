"""Metrics, their two ways out, log lines and trace context."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import logging
from collections.abc import Mapping

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headgate.client.model.outgoing import Put, message_of
from headgate.errors import InvalidRequest
from headgate.local.processes import server_ports
from headgate.telemetry.graphite import Graphite, GraphiteSettings, lines_of, read_graphite
from headgate.telemetry.logs import log_fields, log_to
from headgate.telemetry.metrics import CHILDREN_MAX, Registry
from headgate.telemetry.prometheus import exposition
from headgate.telemetry.tracing import TraceContext, current_trace, read_trace, with_trace

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def filled() -> Registry:
    """One of each."""
    registry = Registry()
    registry.counter("headgate_acked", "Acked.", "queue").of("shop/emails").add(3)
    registry.gauge("headgate_held", "Held.").of().value = 1.5
    registry.reading("headgate_lanes", "Lanes.", ["queue"], lambda: [(("a",), 2.0), (("b",), 4.0)])
    lag = registry.histogram("headgate_lag_seconds", "Lag.", "queue", bounds=(0.1, 1.0)).of("shop/emails")
    for value in (0.05, 0.1, 0.5, 7.0):
        lag.observe(value)
    return registry


def test_prometheus_reads_what_is_reported() -> None:
    families = {each.name: each for each in text_string_to_metric_families(exposition(filled()).decode())}
    samples = {
        (each.name, tuple(sorted(each.labels.items()))): each.value
        for family in families.values()
        for each in family.samples
    }
    queue = ("queue", "shop/emails")
    assert 3 == samples["headgate_acked_total", (queue,)]
    assert 1.5 == samples["headgate_held", ()]
    assert (2, 4) == (samples["headgate_lanes", (("queue", "a"),)], samples["headgate_lanes", (("queue", "b"),)])
    assert [2, 3, 4] == [samples["headgate_lag_seconds_bucket", (("le", le), queue)] for le in ("0.1", "1.0", "+Inf")]
    assert (4, 7.65) == (
        samples["headgate_lag_seconds_count", (queue,)],
        samples["headgate_lag_seconds_sum", (queue,)],
    )
    assert "histogram" == families["headgate_lag_seconds"].type


def test_labels_do_not_grow_without_bound() -> None:
    family = Registry().counter("x", "X.", "process")
    for number in range(CHILDREN_MAX + 500):
        family.of(str(number)).add()
    assert CHILDREN_MAX + 1 == len(list(family))
    assert 500 == family.of("other").value


# ---- Graphite


def test_lines_are_paths_with_their_numbers() -> None:
    assert {
        "pre.fix.headgate_acked.shop_emails 3 7\n",
        "pre.fix.headgate_held 1.5 7\n",
        "pre.fix.headgate_lanes.a 2 7\n",
        "pre.fix.headgate_lanes.b 4 7\n",
        "pre.fix.headgate_lag_seconds.shop_emails.sum 7.65 7\n",
        "pre.fix.headgate_lag_seconds.shop_emails.count 4 7\n",
        "pre.fix.headgate_lag_seconds.shop_emails.le_0_1 2 7\n",
        "pre.fix.headgate_lag_seconds.shop_emails.le_1 3 7\n",
        "pre.fix.headgate_lag_seconds.shop_emails.le_inf 4 7\n",
    } == set(lines_of(filled(), "pre.fix", 7))


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"METRICS_GRAPHITE": "false", "GRAPHITE_URL": "x"}, None),
        ({"METRICS_GRAPHITE": "true", "GRAPHITE_URL": "g"}, GraphiteSettings("g", 2003, "headgate")),
        (
            {"METRICS_GRAPHITE": "TRUE", "GRAPHITE_URL": "tcp://g.example:77/", "GRAPHITE_PREFIX": "a.b."},
            GraphiteSettings("g.example", 77, "a.b"),
        ),
        ({"METRICS_GRAPHITE": "1", "GRAPHITE_URL": "[::1]:9"}, GraphiteSettings("::1", 9, "headgate")),
    ],
)
def test_graphite_is_asked_for_by_the_environment(
    environment: Mapping[str, str], expected: GraphiteSettings | None
) -> None:
    assert expected == read_graphite(environment)


@pytest.mark.parametrize(
    "environment",
    [
        {"METRICS_GRAPHITE": "perhaps"},
        {"METRICS_GRAPHITE": "true"},
        {"METRICS_GRAPHITE": "true", "GRAPHITE_URL": "http://g/x"},
        {"METRICS_GRAPHITE": "true", "GRAPHITE_URL": "g:99999"},
        {"METRICS_GRAPHITE": "true", "GRAPHITE_URL": "g", "GRAPHITE_PREFIX": "a b"},
    ],
)
def test_a_mistake_about_graphite_is_reported(environment: Mapping[str, str]) -> None:
    with pytest.raises(InvalidRequest):
        read_graphite(environment)


class Listener:
    """Something that takes lines as Graphite does."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.changed = asyncio.Event()
        self.port = 0
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []

    async def open(self, port: int = 0) -> None:
        self._server = await asyncio.start_server(self._take, "127.0.0.1", port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            await self._take_lines(reader)

    async def _take_lines(self, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            self.lines.append(line.decode())
            self.changed.set()

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.close()

    async def until(self, count: int) -> None:
        async with asyncio.timeout(10):
            while len(self.lines) < count:
                self.changed.clear()
                await self.changed.wait()


def test_lines_reach_a_listener_and_what_cannot_reach_it_is_dropped_and_counted() -> None:
    async def scenario() -> None:
        listener = Listener()
        await listener.open()
        registry = filled()
        graphite = Graphite(GraphiteSettings("127.0.0.1", listener.port), registry, now_s=lambda: 1_000.0)
        await graphite.ship()
        count = len(lines_of(registry, "headgate", 0))
        await listener.until(count)
        assert "headgate.headgate_acked.shop_emails 3 1000\n" in listener.lines
        assert (count, 0) == (graphite.sent.value, graphite.dropped.value)
        await listener.close()
        port = listener.port
        for _ in range(1_000):  # the first may still go into a connection whose end is not known yet
            await graphite.ship()
            await asyncio.sleep(0)
        assert graphite.dropped.value >= count
        again = Listener()
        await again.open(port)
        await graphite.ship()
        await again.until(count)
        await again.close()

    asyncio.run(scenario())


def test_a_graphite_that_takes_nothing_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.telemetry.graphite.WITHIN_S", 0.2)

    async def scenario() -> None:
        async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await asyncio.Event().wait()

        server = await asyncio.start_server(deaf, "127.0.0.1", 0, limit=1)
        registry = Registry()
        family = registry.counter("n" * 200, "X.", "which")
        for number in range(CHILDREN_MAX):
            family.of("y" * 4_000 + str(number)).add()
        graphite = Graphite(GraphiteSettings("127.0.0.1", server.sockets[0].getsockname()[1]), registry)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        for _ in range(30):
            await graphite.ship()
            if graphite.dropped.value:
                break
        assert graphite.dropped.value >= CHILDREN_MAX
        assert loop.time() - began_s < 10
        server.close()

    asyncio.run(scenario())


def test_a_graphite_that_is_unavailable_from_the_beginning_is_only_counted() -> None:
    async def scenario() -> None:
        graphite = Graphite(GraphiteSettings("127.0.0.1", server_ports(1)[0]), filled())
        await graphite.ship()
        assert graphite.dropped.value > 0

    asyncio.run(scenario())


# ---- trace context


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
        "00-00000000000000000000000000000000-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
        "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
    ],
)
def test_what_is_no_trace_is_as_if_it_were_not_there(wrong: str) -> None:
    assert read_trace({"traceparent": wrong}) is None


def test_a_trace_is_read_with_its_state_and_a_later_version_is_borne() -> None:
    result = read_trace({"traceparent": PARENT, "tracestate": "a=b,c=d"})
    expected = TraceContext(PARENT, "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", "a=b,c=d")
    assert expected == result
    later = PARENT.replace("00-", "cc-", 1) + "-what-is-to-come"
    assert later == getattr(read_trace({"traceparent": later}), "traceparent", None)
    assert read_trace({"traceparent": b"x"}) is None
    assert getattr(read_trace({"traceparent": PARENT, "tracestate": "x" * 513}), "tracestate", "") is None


def test_what_is_put_while_a_message_is_handled_carries_its_trace_on() -> None:
    token = current_trace.set(read_trace({"traceparent": PARENT, "tracestate": "a=b"}))
    try:
        assert {"k": "v", "traceparent": PARENT, "tracestate": "a=b"} == with_trace({"k": "v"})
        own = {"traceparent": PARENT.replace("b7", "c8")}
        assert own == with_trace(own)
        assert PARENT == message_of(Put(b""), 0).attributes["traceparent"]
    finally:
        current_trace.reset(token)
    assert {} == with_trace({})


# ---- log lines


def logged(form: str, **extra: object) -> str:
    """The form of one line."""
    stream = io.StringIO()
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    try:
        log_to(stream, form=form)
        token = log_fields.set({"message_id": "m1", "attempt": 2})
        logging.getLogger("headgate.test").warning("message failed", extra=extra)
        log_fields.reset(token)
    finally:
        root.handlers[:] = before
        root.setLevel(level)
    return stream.getvalue()


def test_a_line_is_a_json_object_with_static_text_and_values_as_fields() -> None:
    line = json.loads(logged("json", reason="two\nlines", at_once=True))
    assert line.pop("timestamp").endswith("Z")
    assert {
        "level": "warning",
        "logger": "headgate.test",
        "message": "message failed",
        "message_id": "m1",
        "attempt": 2,
        "reason": "two\nlines",
        "at_once": True,
    } == line


def test_a_line_for_people_has_the_same_fields() -> None:
    line = logged("text", reason="two\nlines", count=3)
    assert line.endswith('warning message failed  message_id=m1 attempt=2 reason="two\\nlines" count=3\n')
