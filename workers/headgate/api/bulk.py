"""Work on many messages at once, done by Spark: one SparkApplication a run."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from headgate.api.model import Count, Model
from headgate.api.names import EntryPoint, Image, Moment, PartName, QueueName, Rate
from headgate.api.passed_on import SPARK_POD
from headgate.api.shapes import CRON

Text = Annotated[str, StringConstraints(max_length=1024)]


class Sink(Model):
    """Where a job writes."""

    format: Literal["parquet", "json", "csv", "orc", "jdbc", "headgate"] = Field(
        description="The form that Spark writes. parquet, json, csv, orc and headgate (a queue) get each message "
        "exactly once, also when the job is killed and run again. jdbc gets each message at least once.",
    )
    path: Annotated[str, StringConstraints(min_length=1, max_length=2048)] = Field(
        description="Where to: a path such as s3a://bucket/emails, a JDBC URL, or namespace/queue for headgate."
    )
    options: dict[Annotated[str, StringConstraints(max_length=128)], Text] | None = Field(
        None, max_length=64, description="Options of Spark's writer. Secrets belong into a Secret, not here."
    )


class Spark(Model):
    """The SparkApplication that runs the job."""

    image: Image | None = Field(
        None, description="The image with Spark, headgate and the handler. Unset: the one that the chart names."
    )
    driver: dict[str, Any] | None = Field(
        None,
        max_length=64,
        description="A patch of the SparkApplication's `spec.driver`: cores, memory, env, template. "
        "At most 16 KiB of JSON, and 200 items per list.",
        json_schema_extra=SPARK_POD,
    )
    executor: dict[str, Any] | None = Field(
        None,
        max_length=64,
        description="A patch of the SparkApplication's `spec.executor`: instances, cores, memory, env, template. "
        "At most 16 KiB of JSON, and 200 items per list.",
        json_schema_extra=SPARK_POD,
    )
    conf: dict[Annotated[str, StringConstraints(max_length=256)], Text] | None = Field(
        None, max_length=256, description="Spark's configuration, such as spark.sql.shuffle.partitions."
    )


class Bulk(Model):
    """A job over many messages, run by a schedule or when the backlog is great; one run at a time."""

    name: PartName = Field(description="Its name within the queue; it names the SparkApplications.")
    mode: Literal["drain", "replay", "redrive", "move", "export"] = Field(
        description="drain: handle what waits and settle what succeeded. replay: send a range of kept history again. "
        "redrive: send dead letters back to where they came from. move: put what waits into another queue. "
        "export: write history to files, each run only what is new."
    )
    schedule: Annotated[str, CRON] | None = Field(
        None, description='When to run, as cron in UTC, such as "0 2 * * *". This, or backlogAbove, or both.'
    )
    backlog_above: Count | None = Field(
        None,
        ge=1,
        le=1_000_000_000_000,
        description="Run when more messages than this wait. This, or schedule, or both.",
    )
    handler: EntryPoint | None = Field(
        None,
        description="The Python function, as module:function. drain: a DataFrame of messages in, a DataFrame of id, "
        "outcome and reason out. replay: a DataFrame of messages in, one of messages out.",
    )
    sink: Sink | None = Field(None, description="Where to write, instead of a handler or a queue.")
    target: QueueName | None = Field(
        None,
        description="The Queue of this namespace to put into: needed by move; possible in drain and replay instead "
        "of a sink; in redrive instead of the messages' own sources.",
    )
    from_: Moment | None = Field(
        None,
        alias="from",
        description="The beginning of the range: a moment such as 2026-11-18T09:00:00Z, or an age such as 24h. "
        "Unset: all that is kept.",
    )
    to: Moment | None = Field(
        None, description="The end of the range, not included: a moment or an age. Unset: the start of the run."
    )
    where: Annotated[str, StringConstraints(min_length=1, max_length=4096)] | None = Field(
        None, description="An SQL predicate over the messages' columns; only those for which it is true are taken."
    )
    rate: Rate | None = Field(None, description="The most messages taken, such as 500/s. Unset: no limit.")
    spark: Spark = Field(default_factory=Spark, description="The SparkApplication that runs it.")
