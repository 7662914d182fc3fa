"""Runs one job: opens its resources, checks that it is possible, runs it, reports the result.

All faults of the request are found before anything is reserved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from pyspark.sql import DataFrame, SparkSession

from headgate.client.queue import Queue
from headgate.client.redriving import SOURCE_QUEUE
from headgate.engines.registry import engine_of_entry
from headgate.engines.summary.pass_results import BULK_DONE, BULK_RUNS
from headgate.errors import HeadgateError
from headgate.store.catalogue.bulk_log import BulkLog, JobTakenOver
from headgate_spark.engines.contract import HistorySplit
from headgate_spark.engines.registry import spark_engine
from headgate_spark.jobs.frames import Frames, SparkFailed, spark_errors_as
from headgate_spark.jobs.history import HistoryJob
from headgate_spark.jobs.request import JobRequest, JobWrong, parse_time_us
from headgate_spark.jobs.reserving_job import ReservingJob
from headgate_spark.jobs.show_progress import JobProgress
from headgate_spark.jobs.sinks import BatchSink, HandlerSink, QueueSink, sink_of
from headgate_spark.jobs.tasks import Puts, QueueSource
from headgate_spark.process.session import await_executor, share_environment
from headgate_spark.process.worker_connection import WorkerConnection, task_environment

OUTCOME_COLUMNS = ("id", "outcome")
MESSAGE_COLUMNS = ("id", "payload")


def run_job(spark: SparkSession, connection: WorkerConnection, request: JobRequest, job: UUID) -> JobProgress:
    """From its checks to its end; returns the result."""
    queue = connection.queue(request.queue)
    source = QueueSource(share_environment(spark, connection), request.queue, engine_of_entry(queue.entry))
    progress = JobProgress(connection, job, f"{request.mode} {request.queue}")
    run = _Run(spark, connection, queue, Frames(spark, source), progress, request, job)
    progress.report(BULK_RUNS)  # an earlier run's report is not this one's
    try:
        with spark_errors_as(SparkFailed):
            if await_executor(spark, progress.warn):
                progress.report(BULK_RUNS)
            (run.reserving_job() if request.takes_reservations else run.history_job()).run()
    except JobTakenOver:
        raise  # the row is the other run's by now
    except HeadgateError as error:
        progress.report(str(error))
        raise
    finally:
        progress.show(last=True)
    progress.report(BULK_DONE)
    return progress


@dataclass(frozen=True)
class _Run:
    """The resources of a run, and the job that is built on them."""

    spark: SparkSession
    connection: WorkerConnection
    queue: Queue
    frames: Frames
    progress: JobProgress
    request: JobRequest
    job: UUID

    def reserving_job(self) -> ReservingJob:
        request, queue = self.request, self.queue
        where = self._predicate()
        self.frames.where(where)
        dead_name = queue.entry.spec.get("deadLetter")
        dead: QueueSink | None = None
        if request.handler is not None:
            sink: BatchSink = HandlerSink(queue, self.frames.handler(request.handler, OUTCOME_COLUMNS))
            if dead_name is not None:
                target = self.connection.queue(f"{queue.name.partition('/')[0]}/{dead_name}").name
                dead = QueueSink(self.spark, self._puts(target, dead_of=queue.name))
        else:
            sink = self._sink()
        from_us, until_us = self._range()
        self.progress.begin(self.connection.run(queue.stats()).backlog)
        return ReservingJob(
            request,
            self.connection,
            queue,
            spark_engine(queue).reservations(queue, self.job),
            log_of(self.connection, self.job),
            self.frames,
            sink,
            dead,
            self.progress,
            where,
            from_us,
            until_us,
        )

    def _predicate(self) -> str | None:
        """Of dead letters those are taken that name their source queue, if that still exists, unless a target is
        named."""
        where = self.request.where
        if self.request.mode != "redrive" or self.request.target is not None:
            return where
        headgate = self.connection.headgate
        homes = [name for name in self.connection.run(headgate.queues()) if name != self.queue.name]
        homed = f"attributes['{SOURCE_QUEUE}'] in ({', '.join(map(repr, homes))})" if homes else "false"
        return homed if where is None else f"({homed}) and ({where})"

    def history_job(self) -> HistoryJob:
        request, frames = self.request, self.frames
        chosen = frames.where(request.where)
        handler = None if request.handler is None else frames.handler(request.handler, MESSAGE_COLUMNS)
        sink = self._sink()
        from_us, until_us = self._range()
        kept_us = self.connection.headgate.now_us() - self.queue.engine.settings.retention_us
        from_us = max(from_us or 0, kept_us)
        if from_us >= until_us:
            raise JobWrong("The range is empty, or older than the retention", begins=request.from_, ends=request.to)
        scan = spark_engine(self.queue).scan

        def messages(splits: Sequence[HistorySplit]) -> DataFrame:
            wanted = chosen(frames.history(splits))
            return wanted if handler is None else handler(wanted)

        def splits(begin_us: int, end_us: int) -> Sequence[HistorySplit]:
            return self.connection.run(scan.history(self.queue, begin_us, end_us))

        return HistoryJob(
            self.connection,
            log_of(self.connection, self.job),
            sink,
            self.progress,
            splits,
            messages,
            from_us,
            until_us,
            goes_on=request.mode == "export",
        )

    def _range(self) -> tuple[int | None, int]:
        now_us = self.connection.headgate.now_us()
        until_us = min(parse_time_us(self.request.to, now_us) or now_us, now_us)
        return parse_time_us(self.request.from_, now_us), until_us

    def _sink(self) -> BatchSink:
        """The sink, if it can be written to."""
        request = self.request
        sink: BatchSink
        if request.sink is not None:
            by_day = "day" if request.mode == "export" else None
            sink = sink_of(self.spark, request.sink, self.job.hex[:8], partition_by=by_day)
        else:
            target = None if request.target is None else self.connection.queue(request.target).name
            sink = QueueSink(self.spark, self._puts(target))
        sink.check()
        return sink

    def _puts(self, target: str | None, *, dead_of: str | None = None) -> Puts:
        return Puts(
            task_environment(self.connection.environment),
            engine_of_entry(self.queue.entry),
            target,
            self.job.hex,
            0,
            0,
            self.request.rate,
            keeps_death=self.request.mode in ("move", "replay"),
            dead_of=dead_of,
        )


def log_of(connection: WorkerConnection, job: UUID) -> BulkLog:
    process_context = connection.headgate.process_context
    return BulkLog(process_context.store_in(process_context.keyspace), job, process_context.new_uuid)
