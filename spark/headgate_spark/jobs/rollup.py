"""Rollup: the windows of a counter, each key's merged value, written to files; each run what became final since.

It is a job of history (history.py) whose parts are windows and whose lanes are buckets. A window is written once it
is final: its mutators are silent, and all updates with tokens that it may contain are folded.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import UUID

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from headgate.client.counter import Counter
from headgate.counters.collect.fold_minutes import WindowReader
from headgate.counters.model.decide_windows import decide_final_before_us, window_at, windows_of
from headgate.counters.types.contract import plain
from headgate.engines.summary.pass_results import BULK_DONE
from headgate.errors import InvalidRequest
from headgate_spark.engines.contract import HistorySplit
from headgate_spark.engines.packed_columns import TIMESTAMP
from headgate_spark.jobs.history import HistoryJob
from headgate_spark.jobs.request import SinkRequest, parse_time_us
from headgate_spark.jobs.run import log_of
from headgate_spark.jobs.show_progress import JobProgress
from headgate_spark.jobs.sinks import sink_of
from headgate_spark.jobs.tasks import share_out
from headgate_spark.process.worker_connection import WorkerConnection, task_environment

SCHEMA = pa.schema(
    [
        ("counter", pa.string()),
        ("key", pa.string()),
        ("window_start", TIMESTAMP),
        ("window_end", TIMESTAMP),
        ("value", pa.string()),
        ("state", pa.binary()),
    ]
)
ROWS_A_BATCH = 5_000
TASKS_A_CORE = 4
SPLITS_A_PIECE = 20_000
"""Most windows of a first run may be empty: the start of a counter is not recorded."""


class NoSuchWindows(InvalidRequest):
    """The counter has no windows of this length."""


@dataclass(frozen=True)
class RollupRequest:
    counter: str
    grain_us: int
    sink: SinkRequest
    from_: str | None = None
    to: str | None = None


def run_rollup(spark: SparkSession, connection: WorkerConnection, request: RollupRequest, job: UUID) -> JobProgress:
    """All windows that are final and were not written yet."""
    counter = connection.run(connection.headgate.counter(request.counter))
    settings = counter.handle.settings
    if request.grain_us not in settings.grains_us:
        there = ", ".join(f"{grain // 1_000_000}s" for grain in settings.grains_us) or "none"
        raise NoSuchWindows(counter=request.counter, grain_s=request.grain_us // 1_000_000, there=there)
    now_us = connection.headgate.now_us()
    final_us = decide_final_before_us(
        now_us,
        refuse_within_us=settings.life.refuse_within_us,
        token_window_us=settings.token_window_us,
        skew_us=settings.skew_us,
    )
    kept_us = now_us - settings.retention_us
    sink = sink_of(spark, request.sink, job.hex[:8], partition_by="day")
    sink.check()
    progress = JobProgress(connection, job, f"rollup {request.counter}")
    history = HistoryJob(
        connection,
        log_of(connection, job),
        sink,
        progress,
        splits=partial(splits_of, settings.buckets, request.grain_us),
        messages=partial(_values, spark, task_environment(connection.environment), counter, request.grain_us),
        from_us=max(parse_time_us(request.from_, now_us) or 0, kept_us),
        until_us=min(parse_time_us(request.to, now_us) or final_us, final_us),
        goes_on=True,
        parts_a_piece=max(1, SPLITS_A_PIECE // settings.buckets),
    )
    history.run()
    progress.show(last=True)
    progress.report(BULK_DONE)
    return progress


def splits_of(buckets: int, grain_us: int, from_us: int, until_us: int) -> list[HistorySplit]:
    """Every bucket of every window."""
    return [
        HistorySplit(str(bucket), window.start_us // grain_us, (), window.start_us, window.end_us)
        for window in windows_of(grain_us, from_us, until_us)
        for bucket in range(buckets)
    ]


def _values(
    spark: SparkSession,
    environment: Mapping[str, str],
    counter: Counter,
    grain_us: int,
    splits: Sequence[HistorySplit],
) -> DataFrame:
    count = min(len(splits), max(1, spark.sparkContext.defaultParallelism) * TASKS_A_CORE)
    shares = [splits[number::count] for number in range(count)]
    return share_out(spark, environment, shares, partial(_read_windows, counter.name, grain_us), SCHEMA)


def _read_windows(
    name: str, grain_us: int, connection: WorkerConnection, splits: Sequence[HistorySplit]
) -> Iterator[pa.RecordBatch]:
    """The values in these windows and buckets."""
    counter = connection.run(connection.headgate.counter(name))
    return connection.each(_windows(counter, grain_us, splits))


async def _windows(counter: Counter, grain_us: int, splits: Sequence[HistorySplit]) -> AsyncIterator[pa.RecordBatch]:
    reader = WindowReader(counter.handle.host, counter.handle.settings, counter.kind)
    rows: list[dict[str, Any]] = []
    for split in splits:
        window = window_at(split.from_us, grain_us)
        begin, end = (datetime.fromtimestamp(us / 1e6, UTC) for us in (window.start_us, window.end_us))
        async for key, state in reader.keys(int(split.lane), window):
            rows.append(_row(counter, key, begin, end, state))
            if len(rows) >= ROWS_A_BATCH:
                yield pa.RecordBatch.from_pylist(rows, SCHEMA)
                rows = []
    if rows:
        yield pa.RecordBatch.from_pylist(rows, SCHEMA)


def _row(counter: Counter, key: str, begin: datetime, end: datetime, state: Any) -> dict[str, Any]:
    return {
        "counter": counter.name,
        "key": key,
        "window_start": begin,
        "window_end": end,
        "value": json.dumps(plain(counter.kind.value(state, {})), ensure_ascii=False),
        "state": counter.kind.dump(state),
    }
