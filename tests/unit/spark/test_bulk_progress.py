"""How far a bulk job is: as people see it on a terminal and in a log, as the operator and Graphite get it."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from headgate.errors import Unavailable
from headgate_spark.jobs import show_progress
from headgate_spark.jobs.show_progress import JobProgress
from headgate_spark.process.worker_connection import WorkerConnection

JOB = UUID(int=5)


class Terminal(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


class LocalConnection:
    """A connection, as far as progress needs one."""

    def __init__(self, environment: dict[str, str] | None = None) -> None:
        self.environment = environment or {}
        self.notes: list[tuple[str, int, int]] = []
        self.is_unavailable = False
        process_context = SimpleNamespace(store_in=lambda keyspace: keyspace, keyspace="headgate")
        self.headgate = SimpleNamespace(process_context=process_context, now_us=lambda: 7)

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run(work)


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch) -> LocalConnection:
    """Keeps the lines that it is given."""
    one = LocalConnection()

    async def write(_store: object, job: UUID, result: Any) -> None:
        assert job == JOB
        if one.is_unavailable:
            raise Unavailable("the store is unavailable")
        one.notes.append((result.message, result.keys, result.problems))

    monkeypatch.setattr(show_progress, "write_pass_result", write)
    return one


def progress_on(local: LocalConnection, stream: io.StringIO) -> JobProgress:
    """Of a job that drains a queue."""
    return JobProgress(cast("WorkerConnection", local), JOB, "drain shop/emails", stream)


def test_a_terminal_shows_a_bar_that_is_written_over(local: LocalConnection) -> None:
    stream = Terminal()
    one = progress_on(local, stream)
    one.begin(4_000)
    one.batch(900, 50, 50, 1.0)
    one.show(last=True)
    shown = stream.getvalue().split("\r\x1b[K")
    assert "drain shop/emails [######" in shown[1]
    assert " 25% 950 done, 50 left in the queue, 50 of them dead letters, " in shown[1]
    assert shown[-1].endswith("/s\n")


def test_a_log_gets_a_line_now_and_then_and_the_last(local: LocalConnection, monkeypatch: pytest.MonkeyPatch) -> None:
    at_s = [100.0]
    monkeypatch.setattr(show_progress.time, "monotonic", lambda: at_s[0])
    stream = io.StringIO()
    one = progress_on(local, stream)
    for _ in range(30):
        at_s[0] += 1
        one.batch(10, 0, 0, 1.0)
    one.show(last=True)
    assert ["10 done", "110 done", "210 done", "300 done"] == [
        line.removeprefix("drain shop/emails ").partition(",")[0] for line in stream.getvalue().splitlines()
    ]


def test_the_operator_reads_what_was_settled_and_what_stays(local: LocalConnection) -> None:
    one = progress_on(local, io.StringIO())
    one.batch(5, 2, 3, 1.0)
    one.batch(1, 0, 0, 1.0)
    one.report("done")
    assert [("runs", 7, 3), ("runs", 8, 3), ("done", 8, 3)] == local.notes


def test_a_figure_that_is_unknown_is_reported_and_harms_nothing(local: LocalConnection) -> None:
    local.is_unavailable = True
    stream = io.StringIO()
    progress_on(local, stream).batch(5, 2, 3, 1.0)
    assert "the figures of the job could not be written: the store is unavailable" in stream.getvalue()


def test_metrics_go_to_graphite_where_the_environment_asks_for_it(local: LocalConnection) -> None:
    lines: list[str] = []

    async def serve() -> None:
        came = asyncio.Event()

        async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while line := await reader.readline():
                lines.append(line.decode())
                if ".done 5 " in lines[-1]:
                    came.set()
            writer.close()

        server = await asyncio.start_server(take, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        local.environment = {"METRICS_GRAPHITE": "true", "GRAPHITE_URL": f"127.0.0.1:{port}"}
        one = progress_on(local, io.StringIO())
        await asyncio.to_thread(one.batch, 5, 2, 3, 1.0)
        await asyncio.wait_for(came.wait(), 5)
        server.close()

    asyncio.run(serve())
    assert any(line.startswith("headgate.headgate_bulk_messages.drain_shop_emails.done 5 ") for line in lines)
