"""A batch read of a queue shows what a plain reader sees, reads no more than it is asked for, and spreads."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

import headgate
from headgate import Put
from headgate.client.model.times import time_us_from
from headgate.client.sync.blocking import SyncHeadgate, SyncQueue
from headgate_spark.datasource import register
from headgate_spark.failures import line_of
from tests.system.spark.conftest import Applied

QUEUE = """
apiVersion: headgate.io/v1beta1
kind: Queue
metadata: {{name: {name}, namespace: shop}}
spec:
  shards: {shards}
  maxClockSkew: 100ms
  timeline: {{safetyLag: 200ms}}
  storage: {{tables: shared}}
"""


def made(applied: Applied, connection: SyncHeadgate, name: str, *, shards: int = 3) -> SyncQueue:
    """A queue of that name."""
    applied(QUEUE.format(name=name, shards=shards))
    return connection.queue(f"shop/{name}")


def frame(spark: SparkSession, queue: str, **options: object) -> DataFrame:
    """Of a queue."""
    reader = spark.read.format("headgate").option("queue", f"shop/{queue}")
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load()


@pytest.fixture(scope="module")
def mixed(applied: Applied, connection: SyncHeadgate) -> Iterator[SyncQueue]:
    """Packed rows, rows of one message, groups, attributes; some of them settled, cancelled, delayed."""
    queue = made(applied, connection, "mixed")
    queue.put_many([Put(f"now-{at}", attributes={"n": str(at), "raw": b"\x00\xff"}) for at in range(700)])
    queue.put_many([Put(f"group-{at}", group=f"g{at % 5}") for at in range(50)])
    later = queue.put_many([Put(f"later-{at}", delay=3600 + at) for at in range(40)])
    assert all(queue.cancel(each) for each in later[:5])
    queue.put_many([Put(f"once-{at}", once=f"key-{at}") for at in range(10)])
    yield queue


def test_live_messages_are_those_that_a_plain_reader_peeks(spark: SparkSession, mixed: SyncQueue) -> None:
    done = mixed.receive(100, wait=10)
    mixed.ack(done)
    peeked = {(each.id, each.payload, each.group, time_us_from(each.due, "due")) for each in mixed.peek(1000)}
    assert len(done) > 0
    rows = frame(spark, "mixed").select("id", "payload", "group", F.unix_micros("due").alias("due_us")).collect()
    assert peeked == {(row.id, bytes(row.payload), row.group, row.due_us) for row in rows}
    assert 700 + 50 + 35 + 10 - len(done) == len(rows)


def test_history_has_all_that_was_put_each_once_whatever_became_of_it(spark: SparkSession, mixed: SyncQueue) -> None:
    rows = frame(spark, "mixed", state="history").select("id", "payload", "standing", "attributes").collect()
    assert 800 == len(rows) == len({row.id for row in rows})
    assert 5 == sum(row.standing == "cancelled" for row in rows)
    attributes = {bytes(row.payload): row.attributes for row in rows}
    assert "7" == attributes[b"now-7"]["n"]


def test_a_schema_of_the_user_s_names_the_columns_that_are_unpacked(spark: SparkSession, mixed: SyncQueue) -> None:
    result = spark.read.format("headgate").schema("payload binary").load("shop/mixed")
    assert (["payload"], True) == (result.columns, result.count() > 600)


@pytest.fixture(scope="module")
def spread(applied: Applied, connection: SyncHeadgate) -> Iterator[datetime]:
    """A message in each of twelve parts, an hour ahead; the time of the first."""
    queue = made(applied, connection, "spread", shards=1)
    start = (datetime.now(UTC) + timedelta(hours=1)).replace(second=30, microsecond=0)
    queue.put_many([Put(f"{at}", deliver_at=start + timedelta(minutes=at)) for at in range(12)])
    yield start


def test_filters_on_the_time_leave_only_the_parts_that_they_name(spark: SparkSession, spread: datetime) -> None:
    everything = frame(spark, "spread", messagesPerSplit=1)
    pushed = [frame(spark, "spread", messagesPerSplit=1, pushFilters="true") for _ in range(2)]
    some = pushed[0].where(
        (F.col("at") >= spread + timedelta(minutes=3)) & (F.col("at") < spread + timedelta(minutes=6))
    )
    assert ["3", "4", "5"] == sorted(bytes(row.payload).decode() for row in some.collect())
    assert (12, 4) == (everything.rdd.getNumPartitions(), some.rdd.getNumPartitions())
    late = pushed[1].where(F.col("due") >= spread + timedelta(minutes=10))
    assert (2, 2) == (late.rdd.getNumPartitions(), late.count())


def test_what_is_made_of_one_dataframe_is_filtered_each_for_itself(spark: SparkSession, spread: datetime) -> None:
    everything = frame(spark, "spread")
    early = everything.where(F.col("at") < spread + timedelta(minutes=3))
    late = everything.where(F.col("at") >= spread + timedelta(minutes=10))
    assert (3, 2, 12, 5) == (early.count(), late.count(), everything.count(), early.unionAll(late).count())


def test_options_name_a_range_as_filters_do(spark: SparkSession, spread: datetime) -> None:
    ranged = frame(
        spark,
        "spread",
        messagesPerSplit=1,
        **{"from": spread.isoformat(), "to": (spread + timedelta(minutes=2)).isoformat()},
    )
    assert (3, 2) == (ranged.rdd.getNumPartitions(), ranged.count()), "the end lies within the third part"
    second = ranged.orderBy("at").select("position").collect()[1].position
    assert (11, 2) == (
        frame(spark, "spread", fromPosition=second).count(),
        frame(spark, "spread", toPosition=second).count(),
    )


def test_a_range_that_holds_nothing_is_no_message(spark: SparkSession, spread: datetime) -> None:
    assert 0 == frame(spark, "spread", **{"from": (spread + timedelta(hours=9)).isoformat()}).count()


def test_a_shard_that_nobody_asks_for_is_not_planned(spark: SparkSession, mixed: SyncQueue) -> None:
    whole = frame(spark, "mixed", state="history")
    one = frame(spark, "mixed", state="history", pushFilters="true").where("shard = 1")
    assert {1} == {row.shard for row in one.select("shard").distinct().collect()}
    assert one.rdd.getNumPartitions() < whole.rdd.getNumPartitions()


def test_a_queue_whose_backlog_lies_in_one_shard_and_one_part_spreads(
    spark: SparkSession, applied: Applied, connection_variables: dict[str, str]
) -> None:
    start = (datetime.now(UTC) + timedelta(minutes=30)).replace(second=5, microsecond=0)
    with headgate.connect_sync(
        connection_variables
    ) as producer:  # at its end it writes how much it put, else within a second
        queue = made(applied, producer, "skewed")
        for first in range(0, 6000, 1000):
            queue.put_many(
                [
                    Put(f"{at}", deliver_at=start + timedelta(milliseconds=at), group="hot")
                    for at in range(first, first + 1000)
                ]
            )
    result = frame(spark, "skewed", messagesPerSplit=1000).groupBy(F.spark_partition_id().alias("split")).count()
    sizes = sorted(row["count"] for row in result.collect())
    assert 6000 == sum(sizes)
    assert len(sizes) >= 5, sizes
    assert sizes[-1] <= 2000, sizes


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"queue": "shop/mixd"}, "did you mean shop/mixed?"),
        ({"queue": "shop/mixed", "state": "dead"}, "state must be one of live, history (given=dead)"),
        ({}, "Set either a queue or a counter"),
    ],
)
def test_a_mistake_is_one_line(spark: SparkSession, mixed: SyncQueue, options: dict[str, str], message: str) -> None:
    with pytest.raises(PySparkException) as raised:
        spark.read.format("headgate").options(**options).load().count()
    assert message in line_of(raised.value)


USERS_OWN = {
    "spark.sql.session.timeZone": "America/New_York",
    "spark.sql.execution.arrow.pyspark.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "777",
}


@pytest.fixture
def of_new_york(spark: SparkSession) -> Iterator[SparkSession]:
    """The session, configured as a user far from UTC has it."""
    before = {key: spark.conf.get(key) for key in USERS_OWN}
    for key, value in USERS_OWN.items():
        spark.conf.set(key, value)
    yield spark
    for key, report in before.items():
        assert report is not None
        spark.conf.set(key, report)


def test_a_session_keeps_its_configuration_and_reads_the_same_times(
    of_new_york: SparkSession, spread: datetime
) -> None:
    register(of_new_york)
    assert USERS_OWN == {key: of_new_york.conf.get(key) for key in USERS_OWN}
    due = frame(of_new_york, "spread").select(F.unix_micros("due").alias("due_us"))
    wanted = [round((spread + timedelta(minutes=at)).timestamp() * 1_000_000) for at in range(12)]
    assert wanted == sorted(row.due_us for row in due.collect())
    late = frame(of_new_york, "spread", pushFilters="true").where(F.col("due") >= spread + timedelta(minutes=10))
    assert 2 == late.count()
