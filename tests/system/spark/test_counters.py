"""Counters with Spark: values and states as the SDK reads them, and updates that count once though tasks fail."""

from __future__ import annotations

import json
import struct

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

from headgate.client.sync.blocking import SyncHeadgate
from headgate_spark.failures import line_of
from tests.system.spark.conftest import Applied
from tests.system.spark.test_write import failing_once

COUNTER = """
apiVersion: headgate.io/v1beta1
kind: Counter
metadata: {{name: {name}, namespace: shop}}
spec: {{type: {kind}, maxClockSkew: 100ms, tokenWindow: 15m, storage: {{tables: shared}}}}
"""


def test_values_and_states_are_those_that_the_sdk_reads(
    spark: SparkSession, applied: Applied, connection: SyncHeadgate
) -> None:
    applied(COUNTER.format(name="views", kind="sum"))
    counter = connection.counter("shop/views")
    for at in range(40):
        counter.add(f"page-{at % 7}", at)
    counter.add("page-0", 5, token=counter.token("once"))
    rows = spark.read.format("headgate").option("counter", "shop/views").load().collect()
    assert {f"page-{at}": counter.value(f"page-{at}") for at in range(7)} == {
        row.key: json.loads(row.value) for row in rows
    }
    version, _ = struct.unpack_from("<BI", bytes(rows[0].state))
    assert 1 == version


def test_updates_of_tasks_that_fail_count_once(
    spark: SparkSession, applied: Applied, connection: SyncHeadgate
) -> None:
    applied(COUNTER.format(name="clicks", kind="sum"))
    frame = spark.range(0, 120, numPartitions=3).select(
        F.concat(F.lit("page-"), F.col("id") % 4).alias("key"), F.lit("[1]").alias("arguments")
    )
    for _ in range(2):
        failing_once(frame, 15).write.format("headgate").mode("append").options(
            counter="shop/clicks", query="hourly", putsAtOnce="5"
        ).save()
    counter = connection.counter("shop/clicks")
    assert [30] * 4 == [counter.value(f"page-{at}") for at in range(4)]


def test_a_counter_is_no_queue(spark: SparkSession, applied: Applied, connection: SyncHeadgate) -> None:
    applied(COUNTER.format(name="lonely", kind="sum"))
    with pytest.raises(PySparkException) as raised:
        spark.read.format("headgate").option("counter", "shop/lonely").option(
            "from", "2026-01-01T00:00:00Z"
        ).load().count()
    assert "A counter has no positions" in line_of(raised.value)
