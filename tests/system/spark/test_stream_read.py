"""A streaming query is a consumer: it has each message once, settles what is done, and leaves the rest to others."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import headgate
from headgate.client.sync.blocking import SyncHeadgate, SyncQueue
from headgate.engines.timeline.lanes.timeline_lanes import lane_of
from headgate_spark.failures import line_of
from tests.system.spark.conftest import Applied
from tests.system.spark.test_batch_read import made


class Reading:
    """A query that keeps what each batch had."""

    def __init__(self, spark: SparkSession, queue: str, checkpoint: Path) -> None:
        self.spark = spark
        self.queue = queue
        self.checkpoint = checkpoint
        self.batches: list[tuple[int, list[str]]] = []
        self.fail_in: int | None = None
        """The number of the non-empty batch whose handling fails."""

    def start(self, **options: Any) -> StreamingQuery:
        """Begin, or continue from the checkpoint."""
        reader = self.spark.readStream.format("headgate").option("queue", f"shop/{self.queue}")
        for name, value in options.items():
            reader = reader.option(name, str(value))
        stream = reader.load().select("payload")
        writing = stream.writeStream.foreachBatch(self._handle).option("checkpointLocation", str(self.checkpoint))
        return writing.start()

    def _handle(self, frame: DataFrame, number: int) -> None:
        matches = sorted(bytes(row.payload).decode() for row in frame.collect())
        if not matches:
            return
        self.batches.append((number, matches))
        if self.fail_in == len(self.batches):
            raise RuntimeError("this batch fails")

    def run(self, **options: Any) -> None:
        """Until nothing is left."""
        query = self.start(**options)
        try:
            query.processAllAvailable()
        finally:
            query.stop()

    @property
    def payloads(self) -> Counter[str]:
        """All that batches had."""
        return Counter(payload for _, result in self.batches for payload in result)


def put(queue: SyncQueue, count: int) -> Counter[str]:
    """Some messages; they are due by the time the query reads."""
    queue.put_many([f"m-{at}" for at in range(count)])
    return Counter({f"m-{at}": 1 for at in range(count)})


def left(queue: SyncQueue) -> list[str]:
    """The live payloads."""
    return [each.payload.decode() for each in queue.peek(1000)]


def until_due(queue: SyncQueue) -> None:
    """All that was put is due."""
    while queue.stats().delayed:
        pass


def test_a_query_has_each_message_once_and_settles_it(
    spark: SparkSession, applied: Applied, connection: SyncHeadgate, tmp_path: Path
) -> None:
    queue = made(applied, connection, "stream")
    expected = put(queue, 700)
    until_due(queue)
    reading = Reading(spark, "stream", tmp_path)
    reading.run(maxMessagesPerTrigger=300)
    assert expected == reading.payloads
    assert [300, 300, 100] == [len(result) for _, result in reading.batches]
    assert [] == left(queue)
    assert [] == queue.receive(10, wait=3)


def test_a_batch_that_failed_is_the_same_after_the_restart_and_nobody_else_had_it(
    spark: SparkSession, applied: Applied, connection: SyncHeadgate, tmp_path: Path
) -> None:
    queue = made(applied, connection, "restart")
    expected = put(queue, 400)
    until_due(queue)
    reading = Reading(spark, "restart", tmp_path)
    reading.fail_in = 2
    with pytest.raises(PySparkException, match="this batch fails"):
        reading.run(maxMessagesPerTrigger=150)
    failed = reading.batches[1]
    others = queue.receive(400, wait=5)
    assert not {each.text() for each in others} & set(failed[1])
    queue.ack(others)
    reading.fail_in = None
    reading.run(maxMessagesPerTrigger=150)
    assert failed == reading.batches[2]
    del reading.batches[1]
    assert expected == reading.payloads + Counter(each.text() for each in others)
    assert [] == left(queue)


def test_a_query_that_comes_back_after_its_loans_settles_what_nobody_else_has(
    spark: SparkSession,
    connection_variables: dict[str, str],
    applied: Applied,
    connection: SyncHeadgate,
    tmp_path: Path,
) -> None:
    queue = made(applied, connection, "overdue", shards=1)
    expected = put(queue, 200)
    until_due(queue)
    reading = Reading(spark, "overdue", tmp_path)
    reading.fail_in = 1
    with pytest.raises(PySparkException):
        reading.run(maxMessagesPerTrigger=120)
    end_reservations(connection_variables, "overdue")
    others = queue.receive(30, wait=10)
    assert others
    queue.ack(others)
    reading.fail_in = None
    reading.run(maxMessagesPerTrigger=120)
    assert reading.batches[0] == reading.batches[1]
    del reading.batches[0]
    had = reading.payloads
    assert set(expected) == set(had) | {each.text() for each in others}
    assert {1} == set(had.values())
    assert [] == left(queue)


def end_reservations(connection_variables: dict[str, str], queue: str) -> None:
    """As the owner of a lane does when the deadline is over."""

    async def work() -> None:
        async with headgate.connect(connection_variables) as opened:
            engine = (await opened.queue(f"shop/{queue}")).engine
            lane = lane_of(engine.host, engine.settings, (engine.settings.generations[0].number, 0))
            lanes = await lane.read_state()
            assert lanes is not None
            assert lanes.reserved is not None
            assert await lane.end_reservation(lanes.reserved)

    asyncio.run(work())


def test_a_mistake_is_one_line(spark: SparkSession, connection_variables: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(PySparkException) as refused:
        Reading(spark, "nothing", tmp_path).run(visibility="1s")
    assert "visibility must be from 30s to 24h" in line_of(refused.value)
