"""Rows written into a queue are messages once each: tasks may fail, jobs may be run again, queries may restart."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

import headgate
from headgate.client.sync.blocking import SyncHeadgate, SyncQueue
from headgate_spark.failures import line_of
from headgate_spark.write.decide_marks import Mark
from headgate_spark.write.marks import BatchMarks
from tests.system.spark.conftest import Applied
from tests.system.spark.test_batch_read import made

WINDOW_US = 86_400_000_000


def payloads(queue: SyncQueue) -> Counter[str]:
    """The payloads in the queue, with their numbers."""
    return Counter(each.payload.decode() for each in queue.peek(1000))


def rows(spark: SparkSession, count: int, *, partitions: int = 3) -> DataFrame:
    """Some rows to be put."""
    return spark.range(0, count, numPartitions=partitions).select(F.concat(F.lit("row-"), "id").alias("payload"))


def write(frame: DataFrame, queue: str, **options: str) -> None:
    """As a batch."""
    frame.write.format("headgate").mode("append").option("queue", f"shop/{queue}").options(**options).save()


def failing_once(frame: DataFrame, after: int) -> DataFrame:
    """The same rows, from tasks whose first attempt fails after this number of them, in another order."""

    def pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        first = context.attemptNumber() == 0
        matches = [row for batch in batches for row in batch.to_pylist()]
        for at, row in enumerate(matches if first else matches[::-1]):
            if first and at == after:
                raise RuntimeError("this task fails")
            yield pa.RecordBatch.from_pylist([row])

    return frame.mapInArrow(pass_on, frame.schema)


def test_a_message_has_what_its_row_states(spark: SparkSession, applied: Applied, connection: SyncHeadgate) -> None:
    queue = made(applied, connection, "columns")
    frame = spark.range(1).select(
        F.lit("hello").alias("payload"),
        F.create_map(F.lit("kind"), F.lit("greeting")).alias("attributes"),
        F.lit("g").alias("group"),
        F.lit(120).alias("delay"),
    )
    write(frame, "columns")
    (result,) = queue.peek(10)
    assert (b"hello", "greeting", "g", "later") == (
        result.payload, result.attributes["kind"], result.group, result.state.value,
    )  # fmt: skip


def test_tasks_that_fail_and_are_run_again_write_each_row_once(
    spark: SparkSession, applied: Applied, connection: SyncHeadgate
) -> None:
    queue = made(applied, connection, "failing")
    twice = rows(spark, 90).union(rows(spark, 10))
    write(failing_once(twice, 12), "failing", putsAtOnce="5")
    expected = Counter({f"row-{at}": 2 if at < 10 else 1 for at in range(90)})
    assert expected == payloads(queue)


def test_a_job_that_is_started_again_under_its_name_writes_nothing_twice(
    spark: SparkSession, applied: Applied, connection: SyncHeadgate
) -> None:
    queue = made(applied, connection, "again")
    for _ in range(2):
        write(rows(spark, 50), "again", query="nightly")
    assert {1} == set(payloads(queue).values())
    write(rows(spark, 50), "again", query="another")
    assert {2} == set(payloads(queue).values())


def test_a_column_of_keys_is_known_however_rows_are_partitioned_and_from_any_process(
    spark: SparkSession, applied: Applied, connection: SyncHeadgate
) -> None:
    queue = made(applied, connection, "keyed")
    queue.put("by hand", once="row-7")
    for partitions in (2, 5):
        write(rows(spark, 40, partitions=partitions).withColumn("key", F.col("payload")), "keyed", keyColumn="key")
    expected = Counter({f"row-{at}" if at != 7 else "by hand": 1 for at in range(40)})
    assert expected == payloads(queue)


def test_without_keys_rows_are_packed(spark: SparkSession, applied: Applied, connection: SyncHeadgate) -> None:
    queue = made(applied, connection, "packed")
    write(rows(spark, 300), "packed", exactlyOnce="false")
    assert Counter({f"row-{at}": 1 for at in range(300)}) == payloads(queue)
    assert len({each.id[:40] for each in queue.peek(1000)}) < 30


def set_mark(connection_variables: dict[str, str], queue: str, query: str, *, batch: int, age_us: int) -> None:
    """As if the batch had been begun this long ago."""

    async def work() -> None:
        async with headgate.connect(connection_variables) as opened:
            context = opened.process_context
            result = await opened.queue(f"shop/{queue}")
            marks = BatchMarks(context.store_in(context.keyspace), result.entry.id, context.new_uuid)
            mine = Mark(batch, context.clock.require() - age_us)
            await marks.begin(query, mine, remembered_us=2 * WINDOW_US, skew_us=0)

    asyncio.run(work())


def test_a_job_begun_longer_ago_than_keys_are_remembered_is_refused(
    spark: SparkSession, connection_variables: dict[str, str], applied: Applied, connection: SyncHeadgate
) -> None:
    queue = made(applied, connection, "old")
    set_mark(connection_variables, "old", "nightly", batch=0, age_us=WINDOW_US)
    with pytest.raises(PySparkException) as refused:
        write(rows(spark, 5), "old", query="nightly")
    assert "some of its keys may have expired" in line_of(refused.value)
    assert not payloads(queue)


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ("id", {}, "The rows to write need a column payload"),
        ("payload", {"keyColumn": "key"}, "keyColumn must name a string column"),
        ("payload", {"mode": "overwrite"}, "supports only append"),
    ],
)
def test_what_cannot_be_written_is_one_line_and_writes_nothing(
    spark: SparkSession,
    applied: Applied,
    connection: SyncHeadgate,
    columns: str,
    options: dict[str, str],
    message: str,
) -> None:
    made(applied, connection, "refused")
    frame = spark.range(3).select(F.col("id").cast("string").alias(columns))
    mode = options.pop("mode", "append")
    with pytest.raises(PySparkException) as refused:
        frame.write.format("headgate").mode(mode).option("queue", "shop/refused").options(**options).save()
    assert message in line_of(refused.value)


class Stream:
    """A streaming query from files into a queue, with its checkpoint."""

    def __init__(self, spark: SparkSession, directory: Path, queue: str) -> None:
        self.spark = spark
        self.input = directory / "in"
        self.checkpoint = directory / "checkpoint"
        self.queue = queue
        self.input.mkdir()

    def add(self, first: int, last: int) -> None:
        """A file of rows."""
        text = "\n".join(f"row-{at}" for at in range(first, last))
        (self.input / f"{uuid.uuid4().hex}.txt").write_text(text + "\n")

    def run(self) -> None:
        """Handle all files that are there."""
        result = self.spark.readStream.format("text").load(str(self.input)).withColumnRenamed("value", "payload")
        query = (
            result.writeStream.format("headgate")
            .option("queue", f"shop/{self.queue}")
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)

    def forget_commit(self, batch: int) -> None:
        """As if the query had been killed after its tasks wrote, and before Spark noted it."""
        for name in (str(batch), f".{batch}.crc"):
            (self.checkpoint / "commits" / name).unlink(missing_ok=True)

    @property
    def id(self) -> str:
        """As the checkpoint keeps it."""
        text = (self.checkpoint / "metadata").read_text()
        return text.split('"id":"')[1].split('"')[0]


def test_a_query_that_restarts_writes_its_last_batch_no_second_time(
    spark: SparkSession, applied: Applied, connection: SyncHeadgate, tmp_path: Path
) -> None:
    queue = made(applied, connection, "streamed")
    stream = Stream(spark, tmp_path, "streamed")
    stream.add(0, 40)
    stream.run()
    stream.forget_commit(0)
    stream.run()
    stream.add(40, 60)
    stream.run()
    assert Counter({f"row-{at}": 1 for at in range(60)}) == payloads(queue)


def test_a_query_that_restarts_later_than_keys_are_remembered_is_refused(
    spark: SparkSession,
    connection_variables: dict[str, str],
    applied: Applied,
    connection: SyncHeadgate,
    tmp_path: Path,
) -> None:
    queue = made(applied, connection, "late")
    stream = Stream(spark, tmp_path, "late")
    stream.add(0, 10)
    stream.run()
    stream.add(10, 20)
    set_mark(connection_variables, "late", stream.id, batch=1, age_us=WINDOW_US)
    with pytest.raises(PySparkException) as refused:
        stream.run()
    assert "some of its keys may have expired" in line_of(refused.value)
    assert Counter({f"row-{at}": 1 for at in range(10)}) == payloads(queue)
