"""Runs one job: opens its resources, checks that it is possible, runs it, reports the result.

All faults of the request are found before anything is reserved.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from uuid import UUID

from pyspark.sql import DataFrame, SparkSession

from headgate.client.queue import Queue
from headgate.client.redriving import DIED_IN
from headgate.engines.summary.standing import BULK_DONE, BULK_RUNS
from headgate.errors import HeadgateError
from headgate.store.bulk_log import BulkLog, JobTakenOver
from headgate_spark.jobs.borrowed import BorrowingJob, Ground
from headgate_spark.jobs.executors import await_executor
from headgate_spark.jobs.frames import Frames, SparkFailed, told_as
from headgate_spark.jobs.history import HistoryGround, HistoryJob
from headgate_spark.jobs.progress import Progress
from headgate_spark.jobs.request import JobRequest, JobWrong, moment_us
from headgate_spark.jobs.sinks import QueueSink, Sink, sink_of
from headgate_spark.jobs.tasks import Puts, Source
from headgate_spark.jobs.work import HandlerWork, SinkWork, Work
from headgate_spark.lanes.contract import module_of
from headgate_spark.worker_connection import WorkerConnection, local_environment, told_environment

OUTCOME_COLUMNS = ("id", "outcome")
MESSAGE_COLUMNS = ("id", "payload")


def run_job(spark: SparkSession, here: WorkerConnection, request: JobRequest, job: UUID) -> Progress:
    """From its checks to its end; returns the result."""
    queue = here.queue(request.queue)
    if str(spark.sparkContext.master).startswith("local"):
        spark.sparkContext.environment.update(local_environment(here.environment))
    frames = Frames(spark, Source(told_environment(here.environment), request.queue))
    progress = Progress(here, job, f"{request.mode} {request.queue}")
    progress.tell(BULK_RUNS)  # an earlier run's report is not this one's
    try:
        with told_as(SparkFailed):
            if await_executor(spark, progress.warn):
                progress.tell(BULK_RUNS)
            begun = _borrowing if request.borrows else _history
            begun(spark, here, queue, frames, progress, request, job).run()
    except JobTakenOver:
        raise  # the row is the other run's by now
    except HeadgateError as error:
        progress.tell(str(error))
        raise
    finally:
        progress.show(last=True)
    progress.tell(BULK_DONE)
    return progress


def _borrowing(
    spark: SparkSession,
    here: WorkerConnection,
    queue: Queue,
    frames: Frames,
    progress: Progress,
    request: JobRequest,
    job: UUID,
) -> BorrowingJob:
    where = _predicate(here, request, queue)
    frames.where(where)
    dead_name = queue.entry.spec.get("deadLetter")
    work: Work
    dead: QueueSink | None = None
    if request.handler is not None:
        work = HandlerWork(frames, queue, frames.handler(request.handler, OUTCOME_COLUMNS))
        if dead_name is not None:
            target = here.queue(f"{queue.name.partition('/')[0]}/{dead_name}").name
            dead = QueueSink(spark, _puts(here, job, request, target, dead_of=queue.name))
    else:
        sink = _sink(spark, here, request, job)
        sink.check()
        work = SinkWork(frames, sink)
    now_us = here.headgate.now_us()
    until_us = min(moment_us(request.to, now_us) or now_us, now_us)
    progress.begin(here.run(queue.stats()).backlog)
    log = log_of(here, job)
    lending = module_of(queue).lending_of(queue, job)
    from_us = moment_us(request.from_, now_us)
    return BorrowingJob(
        Ground(request, here, queue, lending, log, frames, work, dead, progress, where, from_us, until_us)
    )


def _predicate(here: WorkerConnection, request: JobRequest, queue: Queue) -> str | None:
    """Of dead letters those are taken that name their source queue, if that still exists, unless a target is
    named."""
    if request.mode != "redrive" or request.target is not None:
        return request.where
    homes = [name for name in here.run(here.headgate.queues()) if name != queue.name]
    homed = f"attributes['{DIED_IN}'] in ({', '.join(map(repr, homes))})" if homes else "false"
    return homed if request.where is None else f"({homed}) and ({request.where})"


def _history(
    spark: SparkSession,
    here: WorkerConnection,
    queue: Queue,
    frames: Frames,
    progress: Progress,
    request: JobRequest,
    job: UUID,
) -> HistoryJob:
    chosen = frames.where(request.where)
    transform = chosen
    if request.handler is not None:
        handler = frames.handler(request.handler, MESSAGE_COLUMNS)
        transform = partial(_both, chosen, handler)
    sink = _sink(spark, here, request, job)
    sink.check()
    now_us = here.headgate.now_us()
    kept_us = now_us - queue.engine.settings.retention_us
    from_us = max(moment_us(request.from_, now_us) or 0, kept_us)
    until_us = min(moment_us(request.to, now_us) or now_us, now_us)
    if from_us >= until_us:
        raise JobWrong("The range is empty, or older than the retention", begins=request.from_, ends=request.to)
    history = module_of(queue).history_of(queue)
    return HistoryJob(
        HistoryGround(
            here,
            log_of(here, job),
            sink,
            progress,
            splits=lambda begin_us, end_us: list(here.run(history.splits(begin_us, end_us))),
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


def _sink(spark: SparkSession, here: WorkerConnection, request: JobRequest, job: UUID) -> Sink:
    if request.sink is not None:
        by_day = "day" if request.mode == "export" else None
        return sink_of(spark, request.sink, job.hex[:8], partition_by=by_day)
    target = None if request.target is None else here.queue(request.target).name
    return QueueSink(spark, _puts(here, job, request, target))


def _puts(
    here: WorkerConnection, job: UUID, request: JobRequest, target: str | None, *, dead_of: str | None = None
) -> Puts:
    return Puts(
        told_environment(here.environment),
        target,
        job.hex,
        0,
        0,
        request.rate,
        keeps_death=request.mode in ("move", "replay"),
        dead_of=dead_of,
    )


def log_of(here: WorkerConnection, job: UUID) -> BulkLog:
    ground = here.headgate.ground
    return BulkLog(ground.store_in(ground.keyspace), job, ground.new_uuid)
