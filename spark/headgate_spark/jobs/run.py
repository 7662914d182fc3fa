"""Runs one job: opens its resources, checks that it is possible, runs it, reports the result.

All faults of the request are found before anything is reserved.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from uuid import UUID

from pyspark.sql import DataFrame, SparkSession

from headgate.client.queue import Queue
from headgate.client.redriving import SOURCE_QUEUE
from headgate.engines.summary.standing import BULK_DONE, BULK_RUNS
from headgate.errors import HeadgateError
from headgate.store.catalogue.bulk_log import BulkLog, JobTakenOver
from headgate_spark.engines.registry import spark_engine
from headgate_spark.jobs.frames import Frames, SparkFailed, spark_errors_as
from headgate_spark.jobs.history import HistoryContext, HistoryJob
from headgate_spark.jobs.progress import JobProgress
from headgate_spark.jobs.request import JobRequest, JobWrong, parse_time_us
from headgate_spark.jobs.reserving_job import JobContext, ReservingJob
from headgate_spark.jobs.sinks import BatchSink, QueueSink, sink_of
from headgate_spark.jobs.tasks import Puts, QueueSource
from headgate_spark.jobs.work import BatchWork, HandlerWork, SinkWork
from headgate_spark.process.executors import await_executor
from headgate_spark.process.worker_connection import WorkerConnection, local_environment, task_environment

OUTCOME_COLUMNS = ("id", "outcome")
MESSAGE_COLUMNS = ("id", "payload")


def run_job(spark: SparkSession, connection: WorkerConnection, request: JobRequest, job: UUID) -> JobProgress:
    """From its checks to its end; returns the result."""
    queue = connection.queue(request.queue)
    if str(spark.sparkContext.master).startswith("local"):
        spark.sparkContext.environment.update(local_environment(connection.environment))
    frames = Frames(spark, QueueSource(task_environment(connection.environment), request.queue))
    progress = JobProgress(connection, job, f"{request.mode} {request.queue}")
    progress.report(BULK_RUNS)  # an earlier run's report is not this one's
    try:
        with spark_errors_as(SparkFailed):
            if await_executor(spark, progress.warn):
                progress.report(BULK_RUNS)
            begun = _reserving if request.takes_reservations else _history
            begun(spark, connection, queue, frames, progress, request, job).run()
    except JobTakenOver:
        raise  # the row is the other run's by now
    except HeadgateError as error:
        progress.report(str(error))
        raise
    finally:
        progress.show(last=True)
    progress.report(BULK_DONE)
    return progress


def _reserving(
    spark: SparkSession,
    connection: WorkerConnection,
    queue: Queue,
    frames: Frames,
    progress: JobProgress,
    request: JobRequest,
    job: UUID,
) -> ReservingJob:
    where = _predicate(connection, request, queue)
    frames.where(where)
    dead_name = queue.entry.spec.get("deadLetter")
    work: BatchWork
    dead: QueueSink | None = None
    if request.handler is not None:
        work = HandlerWork(frames, queue, frames.handler(request.handler, OUTCOME_COLUMNS))
        if dead_name is not None:
            target = connection.queue(f"{queue.name.partition('/')[0]}/{dead_name}").name
            dead = QueueSink(spark, _puts(connection, job, request, target, dead_of=queue.name))
    else:
        sink = _sink(spark, connection, request, job)
        sink.check()
        work = SinkWork(frames, sink)
    now_us = connection.headgate.now_us()
    until_us = min(parse_time_us(request.to, now_us) or now_us, now_us)
    progress.begin(connection.run(queue.stats()).backlog)
    log = log_of(connection, job)
    lending = spark_engine(queue).reservations(queue, job)
    from_us = parse_time_us(request.from_, now_us)
    return ReservingJob(
        JobContext(request, connection, queue, lending, log, frames, work, dead, progress, where, from_us, until_us)
    )


def _predicate(connection: WorkerConnection, request: JobRequest, queue: Queue) -> str | None:
    """Of dead letters those are taken that name their source queue, if that still exists, unless a target is
    named."""
    if request.mode != "redrive" or request.target is not None:
        return request.where
    homes = [name for name in connection.run(connection.headgate.queues()) if name != queue.name]
    homed = f"attributes['{SOURCE_QUEUE}'] in ({', '.join(map(repr, homes))})" if homes else "false"
    return homed if request.where is None else f"({homed}) and ({request.where})"


def _history(
    spark: SparkSession,
    connection: WorkerConnection,
    queue: Queue,
    frames: Frames,
    progress: JobProgress,
    request: JobRequest,
    job: UUID,
) -> HistoryJob:
    chosen = frames.where(request.where)
    transform = chosen
    if request.handler is not None:
        handler = frames.handler(request.handler, MESSAGE_COLUMNS)
        transform = partial(_both, chosen, handler)
    sink = _sink(spark, connection, request, job)
    sink.check()
    now_us = connection.headgate.now_us()
    kept_us = now_us - queue.engine.settings.retention_us
    from_us = max(parse_time_us(request.from_, now_us) or 0, kept_us)
    until_us = min(parse_time_us(request.to, now_us) or now_us, now_us)
    if from_us >= until_us:
        raise JobWrong("The range is empty, or older than the retention", begins=request.from_, ends=request.to)
    history = spark_engine(queue).history(queue)
    return HistoryJob(
        HistoryContext(
            connection,
            log_of(connection, job),
            sink,
            progress,
            splits=lambda begin_us, end_us: list(connection.run(history.splits(begin_us, end_us))),
            messages=lambda splits: transform(frames.history(splits)),
            from_us=from_us,
            until_us=until_us,
            goes_on=request.mode == "export",
        )
    )


def _both(
    chosen: Callable[[DataFrame], DataFrame], handler: Callable[[DataFrame], DataFrame], messages: DataFrame
) -> DataFrame:
    return handler(chosen(messages))


def _sink(spark: SparkSession, connection: WorkerConnection, request: JobRequest, job: UUID) -> BatchSink:
    if request.sink is not None:
        by_day = "day" if request.mode == "export" else None
        return sink_of(spark, request.sink, job.hex[:8], partition_by=by_day)
    target = None if request.target is None else connection.queue(request.target).name
    return QueueSink(spark, _puts(connection, job, request, target))


def _puts(
    connection: WorkerConnection, job: UUID, request: JobRequest, target: str | None, *, dead_of: str | None = None
) -> Puts:
    return Puts(
        task_environment(connection.environment),
        target,
        job.hex,
        0,
        0,
        request.rate,
        keeps_death=request.mode in ("move", "replay"),
        dead_of=dead_of,
    )


def log_of(connection: WorkerConnection, job: UUID) -> BulkLog:
    process_context = connection.headgate.process_context
    return BulkLog(process_context.store_in(process_context.keyspace), job, process_context.new_uuid)
