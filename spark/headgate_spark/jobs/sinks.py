"""The outputs of a job: a queue, files, a table behind JDBC. The guarantee of each when a job is killed and run
again:

| sink | promise | by what |
|---|---|---|
| headgate (a queue) | exactly once | once keys of job, batch and message; a started batch is finished |
| parquet, json, csv, orc | exactly once | written aside, committed in the job's row, then moved into place |
| jdbc | at least once | rows that a task wrote before it died are written again |

A sink gets a batch with its number, which distinguishes it from all other batches of the job.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from headgate.client.queue import Queue
from headgate_spark.engines.registry import spark_engine
from headgate_spark.jobs.decide_batch import BatchDecision, BatchPlan, all_done, decide_outcomes
from headgate_spark.jobs.frames import Frames, HandlerFailed, SinkFailed, spark_errors_as
from headgate_spark.jobs.request import FILES, SinkRequest
from headgate_spark.jobs.tasks import PUTS_DONE, Puts, puts_messages, transform
from headgate_spark.schemas import MESSAGES

ASIDE = "_headgate"
"""Uncommitted files are in this folder; readers of a folder ignore names with this prefix."""
KEYS_A_CLAIM = 200
SCOPE_US_MIN, SCOPE_US_MAX = 1_000, 3_600_000_000


@dataclass(frozen=True)
class BatchName:
    """The key that distinguishes a batch from all others, and an attempt at it from another."""

    number: int
    attempt: str
    scope_us: int = SCOPE_US_MAX
    """Messages whose first due times fall into the same interval of this length claim their once keys together."""


def scope_us_of(messages: int, span_us: int, lanes: int) -> int:
    """So that one conditional batch claims about as many keys as it can."""
    wanted = span_us * KEYS_A_CLAIM * max(1, lanes) // max(1, messages)
    return max(SCOPE_US_MIN, min(SCOPE_US_MAX, wanted))


def name_of(plan: BatchPlan, number: int, attempt: str) -> BatchName:
    """The name of this batch: all of it but the attempt follows from the plan."""
    return BatchName(number, attempt, scope_us_of(plan.messages, plan.span_us, len(plan.ranges)))


class BatchSink:
    """Where batches go. The defaults are for a sink whose rows are visible once they are written."""

    redoes = False
    """Whether a started batch has to be finished: parts of it may be written already, under its number."""
    handles = False
    """Whether it passes messages to a handler: then a started batch rests until its reservation is over."""

    def do(self, frames: Frames, plan: BatchPlan, batch: BatchName) -> BatchDecision:
        """Process pending messages; returns their outcome. A sink takes a batch whole, or raises."""
        self.write(frames.picks(plan), batch)
        return all_done(plan)

    def check(self) -> None:
        """Raise where it cannot be written to at all."""

    def write(self, messages: DataFrame, batch: BatchName) -> int:
        """Write a batch; how many messages."""
        raise NotImplementedError

    def publish(self, number: int, attempt: str) -> None:
        """The batch is committed: make it visible. Harmless twice."""

    def clear(self) -> None:
        """Remove the remains of uncommitted attempts. Called when no committed one is unpublished."""


class HandlerSink(BatchSink):
    """The user's function, from a DataFrame of messages to one of outcomes."""

    handles = True

    def __init__(self, queue: Queue, handler: Callable[[DataFrame], DataFrame]) -> None:
        self._queue = queue
        self._handler = handler

    def do(self, frames: Frames, plan: BatchPlan, batch: BatchName) -> BatchDecision:
        """Nothing is settled before all outcomes are known."""
        with spark_errors_as(HandlerFailed):
            reported = frames.reported(self._handler(frames.picks(plan)))
        return decide_outcomes(plan, spark_engine(self._queue).ids, reported)


class QueueSink(BatchSink):
    """Another queue, or the source queues of dead letters."""

    redoes = True

    def __init__(self, spark: SparkSession, puts: Puts) -> None:
        self._puts = puts
        self._at_once = max(1, spark.sparkContext.defaultParallelism)

    def write(self, messages: DataFrame, batch: BatchName) -> int:
        """By once keys, so attempts need no names."""
        template = self._puts
        rate = None if template.rate is None else template.rate / self._at_once
        puts = replace(template, number=batch.number, scope_us=batch.scope_us, rate=rate)
        with spark_errors_as(SinkFailed, target=template.target or "their source queues"):
            rows = transform(messages, puts_messages(puts), PUTS_DONE).collect()
        return sum(row["messages"] for row in rows)


class FileSink(BatchSink):
    """Files of one folder. Each attempt writes into a folder of its own aside. A committed one is moved, file by
    file, to names that contain job and batch, so that moving it twice is moving it once."""

    def __init__(self, spark: SparkSession, request: SinkRequest, job: str, *, partition_by: str | None) -> None:
        self._spark = spark
        self._request = request
        self._job = job
        self._partition_by = partition_by

    def check(self) -> None:
        """A test file: a folder may exist and reject files, and some file systems only return false."""
        with spark_errors_as(SinkFailed, path=self._request.path):
            fs, probe = self._file(f"{ASIDE}/{self._job}/_probe")
            fs.create(probe, True).close()
            fs.delete(probe, False)

    def write(self, messages: DataFrame, batch: BatchName) -> int:
        observation = Observation()
        rows = messages.observe(observation, f.count(f.lit(1)).alias("messages"))
        writer = shaped(rows, self._request.format, self._partition_by).write.format(self._request.format)
        writer = writer.options(**self._request.options).mode("overwrite")
        if self._partition_by is not None:
            writer = writer.partitionBy(self._partition_by)
        with spark_errors_as(SinkFailed, path=self._request.path):
            writer.save(f"{self._request.path}/{self._aside(batch.attempt)}")
        return int(observation.get["messages"])

    def publish(self, number: int, attempt: str) -> None:
        with spark_errors_as(SinkFailed, path=self._request.path):
            fs, aside = self._file(self._aside(attempt))
            if not fs.exists(aside):
                return
            files = fs.listFiles(aside, True)
            root = fs.makeQualified(aside).toString()
            while files.hasNext():
                source = files.next().getPath()
                name = source.getName()
                if name.startswith(("_", ".")):
                    continue
                folder = source.getParent().toString()[len(root) :].strip("/")
                where = f"{folder}/" if folder else ""
                _, target = self._file(f"{where}{self._job}-{number:08d}-{name}")
                fs.mkdirs(target.getParent())
                if not fs.rename(source, target) and not fs.exists(target):
                    raise SinkFailed("A committed file could not be moved into place", file=source.toString())
            fs.delete(aside, True)

    def clear(self) -> None:
        with spark_errors_as(SinkFailed, path=self._request.path):
            fs, aside = self._file(f"{ASIDE}/{self._job}")
            if fs.exists(aside):
                fs.delete(aside, True)

    def _aside(self, attempt: str) -> str:
        return f"{ASIDE}/{self._job}/{attempt}"

    def _file(self, below: str) -> tuple[Any, Any]:
        """Hadoop's file system of the sink, and a path in it."""
        jvm: Any = self._spark._jvm
        context: Any = self._spark.sparkContext._jsc
        path = jvm.org.apache.hadoop.fs.Path(f"{self._request.path}/{below}")
        return path.getFileSystem(context.hadoopConfiguration()), path


class JdbcSink(BatchSink):
    """A table behind JDBC. `path` is its URL, the option `dbtable` its name."""

    def __init__(self, spark: SparkSession, request: SinkRequest) -> None:
        self._spark = spark
        self._request = request

    def check(self) -> None:
        """Writing nothing creates the table, or raises the reason."""
        self._write(self._spark.createDataFrame([], from_arrow_schema(MESSAGES)))

    def write(self, messages: DataFrame, batch: BatchName) -> int:
        observation = Observation()
        self._write(messages.observe(observation, f.count(f.lit(1)).alias("messages")))
        return int(observation.get["messages"])

    def _write(self, messages: DataFrame) -> None:
        with spark_errors_as(SinkFailed, url=self._request.path):
            writer = shaped(messages, "jdbc", None).write.format("jdbc").option("url", self._request.path)
            writer.options(**self._request.options).mode("append").save()


def shaped(messages: DataFrame, form: str, partition_by: str | None) -> DataFrame:
    """The columns in a format's types: only parquet, json and orc know maps; csv and tables get them as JSON."""
    if partition_by is not None:
        time_column = "due" if "due" in messages.columns else "window_start"
        messages = messages.withColumn(partition_by, f.to_date(time_column))
    if form in ("csv", "jdbc"):
        for name, kind in messages.dtypes:
            if kind.startswith("map<string,binary>"):
                messages = messages.withColumn(name, f.to_json(f.transform_values(name, lambda _, v: f.base64(v))))
            elif kind.startswith("map<"):
                messages = messages.withColumn(name, f.to_json(name))
    if form == "csv" and "payload" in messages.columns:
        messages = messages.withColumn("payload", f.col("payload").cast("string"))
    return messages


def sink_of(spark: SparkSession, request: SinkRequest, job: str, *, partition_by: str | None = None) -> BatchSink:
    if request.format in FILES:
        return FileSink(spark, request, job, partition_by=partition_by)
    return JdbcSink(spark, request)
