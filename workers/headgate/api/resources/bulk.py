"""Bulk jobs over many messages by Spark: one SparkApplication per run."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from headgate.api.resources.model import Count, Model
from headgate.api.resources.passed_on import SPARK_POD
from headgate.api.values.cron import CRON
from headgate.api.values.names import EntryPoint, Image, PartName, QueueName, Rate, Timestamp

Text = Annotated[str, StringConstraints(max_length=1024)]


class Sink(Model):
    """The sink of a job."""

    format: Literal["parquet", "json", "csv", "orc", "jdbc", "headgate"]
    """The form that Spark writes. `parquet`, `json`, `csv`, `orc` and `headgate` (a queue) get each message exactly
    once, even if the job is killed and restarted. `jdbc` gets each message at least once."""
    path: Annotated[str, StringConstraints(min_length=1, max_length=2048)]
    """The target: a path such as s3a://bucket/emails, a JDBC URL, or for headgate the name of a Queue of
    this namespace."""
    options: dict[Annotated[str, StringConstraints(max_length=128)], Text] | None = Field(None, max_length=64)
    """Options of Spark's writer. Put secrets into a Secret, not here."""


class Spark(Model):
    """The SparkApplication that runs the job."""

    image: Image | None = None
    """The image with Spark, headgate and the handler. Default: the chart's Spark image."""
    driver: dict[str, Any] | None = Field(None, max_length=64, json_schema_extra=SPARK_POD)
    """A patch of the SparkApplication's `spec.driver`: cores, memory, env, template. At most 16 KiB of JSON, and 200
    items per list."""
    executor: dict[str, Any] | None = Field(None, max_length=64, json_schema_extra=SPARK_POD)
    """A patch of the SparkApplication's `spec.executor`: instances, cores, memory, env, template. At most 16 KiB of
    JSON, and 200 items per list."""
    conf: dict[Annotated[str, StringConstraints(max_length=256)], Text] | None = Field(None, max_length=256)
    """Spark's configuration, such as spark.sql.shuffle.partitions. Keys that set the master, the namespace, the
    account or pod templates are refused."""


class Bulk(Model):
    """A job over many messages, run by a schedule or for a large backlog. One run at a time."""

    name: PartName
    """Its name within the queue, which names the SparkApplications."""
    mode: Literal["drain", "replay", "redrive", "move", "export"]
    """`drain`: handle the waiting messages and settle those that succeed. `replay`: send a range of kept history
    again. `redrive`: return dead letters to their source queue. `move`: put waiting messages into another queue.
    `export`: write new history to files at each run."""
    schedule: Annotated[str, CRON] | None = None
    """The schedule of runs, as cron in UTC, such as "0 2 * * *". Set this, or backlogAbove, or both."""
    backlog_above: Count | None = Field(None, ge=1, le=1_000_000_000_000)
    """Run when more messages than this wait. Set this, or schedule, or both."""
    handler: EntryPoint | None = None
    """The Python function, as module:function. For drain it takes a DataFrame of messages and returns one of id,
    outcome and reason. For replay it takes and returns a DataFrame of messages."""
    sink: Sink | None = None
    """The sink to write to, instead of a handler or a queue."""
    target: QueueName | None = None
    """The target Queue of this namespace. move needs it. drain and replay may have it instead of a sink. redrive uses
    it instead of the messages' source queues."""
    from_: Timestamp | None = Field(None, alias="from")
    """The start of the range: a time such as 2026-11-18T09:00:00Z, or an age such as 24h. Default: all kept
    messages."""
    to: Timestamp | None = None
    """The end of the range (exclusive): a time or an age. Default: the start of the run."""
    where: Annotated[str, StringConstraints(min_length=1, max_length=4096)] | None = None
    """An SQL predicate over the messages' columns. The job takes only messages for which it is true."""
    rate: Rate | None = None
    """The maximum rate at which messages are taken, such as 500/s. Default: no limit."""
    spark: Spark = Field(default_factory=Spark)
    """The SparkApplication that runs it."""
