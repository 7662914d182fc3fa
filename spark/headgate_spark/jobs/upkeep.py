"""gc and repair by Spark: the passes of the CronJobs, shared out among tasks. A counter's pass is shared by buckets,
so one with millions of keys is walked by all cores; repair by queues, since one process at a time repairs one.

A task does the same as `headgate gc` and `headgate repair`, and records it in the same place. So the next CronJob
resumes a killed pass of this job, and the other way round.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial

import pyarrow as pa
from pyspark.sql import SparkSession

from headgate.client.counter import Counter
from headgate.counters.collect.collector import Collector, PassReport
from headgate.errors import HeadgateError, OperationRefused
from headgate.maintenance.pass_groups import PassOutcome, record_failure
from headgate.maintenance.passes import collect_counter, repair_queue
from headgate_spark.jobs.tasks import share_out
from headgate_spark.process.worker_connection import WorkerConnection

TASKS_A_CORE = 2
COUNTED = ("keys", "shards", "expired", "collected", "skipped", "minutes", "buckets")
SHARE_SCHEMA = pa.schema([*((name, pa.int64()) for name in COUNTED), ("unreachable", pa.bool_())])
REPAIR_SCHEMA = pa.schema([("queue", pa.string()), ("report", pa.string()), ("problems", pa.list_(pa.string()))])


def shares_of_buckets(buckets: int, tasks: int) -> list[list[int]]:
    """Every bucket once, in turn."""
    return [list(range(number, buckets, tasks)) for number in range(min(buckets, tasks))]


def _collect_share(
    counter: str, pass_us: int, connection: WorkerConnection, buckets: Sequence[int]
) -> Iterator[pa.RecordBatch]:
    opened = connection.run(connection.headgate.counter(counter))
    report = asdict(connection.run(_collector(connection, opened).run_share(pass_us, buckets)))
    yield pa.RecordBatch.from_pylist([{name: report[name] for name in SHARE_SCHEMA.names}], SHARE_SCHEMA)


def _repair_queue(connection: WorkerConnection, name: str) -> Iterator[pa.RecordBatch]:
    try:
        done = connection.run(repair_queue(connection.headgate, name))
    except HeadgateError as error:
        done = PassOutcome("failed", (str(error),))
    row = {"queue": name, "report": done.message, "problems": list(done.problems)}
    yield pa.RecordBatch.from_pylist([row], REPAIR_SCHEMA)


def collect(
    spark: SparkSession, connection: WorkerConnection, environment: Mapping[str, str], counter: str
) -> PassOutcome:
    """One pass over a counter, recorded."""
    entry = connection.run(connection.headgate.counter(counter)).entry
    share_out = partial(_shared_out, spark, connection, environment)
    work = partial(collect_counter, connection.headgate, counter, share_out)
    return connection.run(record_failure(connection.headgate, entry, work))


def _collector(connection: WorkerConnection, counter: Counter) -> Collector:
    hints = connection.headgate.process_context.hints
    if hints is None:
        raise OperationRefused("This connection has no Cassandra whose hint windows can be read")
    return Collector(counter.handle.host, counter.handle.live, counter.kind, hints)


async def _shared_out(
    spark: SparkSession, connection: WorkerConnection, environment: Mapping[str, str], counter: Counter
) -> PassReport:
    collector = _collector(connection, counter)
    pass_us = await collector.begin()
    cores = max(1, spark.sparkContext.defaultParallelism)
    shares = shares_of_buckets(counter.handle.settings.buckets, cores * TASKS_A_CORE)
    tasks = share_out(spark, environment, shares, partial(_collect_share, counter.name, pass_us), SHARE_SCHEMA)
    rows = await asyncio.to_thread(tasks.collect)
    report = PassReport(pass_us=pass_us, unreachable=any(row["unreachable"] for row in rows))
    for field in COUNTED:
        setattr(report, field, sum(row[field] for row in rows))
    report.full = await collector.end(pass_us)
    return report


def repair(
    spark: SparkSession, environment: Mapping[str, str], queues: Sequence[str]
) -> list[tuple[str, PassOutcome]]:
    """One pass over each of these queues; returns the result of each."""
    tasks = share_out(spark, environment, queues, _repair_queue, REPAIR_SCHEMA)
    return [(row["queue"], PassOutcome(row["report"], tuple(row["problems"]))) for row in tasks.collect()]
