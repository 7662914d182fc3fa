"""The objects that Spark gets: readers and writers that travel to other processes, and batches of expected types."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from headgate.errors import HeadgateError
from headgate_spark.datasource import HeadgateDataSource
from headgate_spark.engines.packed_columns import TYPES
from headgate_spark.schemas import COUNTER, COUNTER_TYPES, QUEUE, schema_of

PAYLOAD = StructType([StructField("payload", StringType())])
UPDATES = StructType([StructField("key", StringType())])


def source(**options: str) -> HeadgateDataSource:
    """As Spark makes it."""
    return HeadgateDataSource(options)


def test_the_batches_are_of_the_types_that_spark_takes_them_for() -> None:
    assert dict(TYPES) == {field.name: field.type for field in to_arrow_schema(schema_of(QUEUE))}
    assert dict(COUNTER_TYPES) == {field.name: field.type for field in to_arrow_schema(schema_of(COUNTER))}


@pytest.mark.parametrize(
    "made",
    [
        lambda: source(queue="shop/emails"),
        lambda: source(queue="shop/emails").reader(schema_of(QUEUE)),
        lambda: source(queue="shop/emails", pushFilters="true").reader(schema_of(QUEUE)),
        lambda: source(counter="shop/views").reader(schema_of(COUNTER)),
        lambda: source(queue="shop/emails", visibility="5m").streamReader(schema_of(QUEUE)),
        lambda: source(queue="shop/emails").writer(PAYLOAD, False),
        lambda: source(counter="shop/views").writer(UPDATES, False),
        lambda: source(queue="shop/emails", checkpointLocation="x").streamWriter(PAYLOAD, False),
    ],
)
def test_whatever_travels_to_another_process_can_and_opens_nothing(made: Any) -> None:
    there = cloudpickle.loads(cloudpickle.dumps(made()))
    assert type(there).__name__ == type(made()).__name__


def test_tasks_of_one_write_share_its_name_and_two_writes_do_not() -> None:
    writer: Any = source(queue="shop/emails").writer(PAYLOAD, False)
    task: Any = cloudpickle.loads(cloudpickle.dumps(writer))
    other: Any = source(queue="shop/emails").writer(PAYLOAD, False)
    assert (True, False) == (writer._query == task._query, writer._query == other._query)


def test_filters_narrow_only_what_is_filtered_once_and_for_all() -> None:
    readers = [source(queue="q", pushFilters=report).reader(schema_of(QUEUE)) for report in ("false", "true")]
    assert [False, True] == ["pushFilters" in vars(type(reader)) for reader in readers]


def test_columns_are_those_of_what_is_read() -> None:
    assert (list(QUEUE), list(COUNTER)) == (
        source(queue="shop/emails").schema().fieldNames(),
        source(counter="shop/views").schema().fieldNames(),
    )


@pytest.mark.parametrize(
    "mistaken",
    [
        lambda: source(queue="q", state="dead").schema(),
        lambda: source(queue="q").reader(UPDATES),
        lambda: source(counter="c", **{"from": "2026-01-01T00:00:00Z"}).reader(schema_of(COUNTER)),
        lambda: source(counter="c", visibility="5m").schema(),
        lambda: source(queue="q").writer(PAYLOAD, True),
        lambda: source(queue="q").writer(UPDATES, False),
        lambda: source(queue="q").streamWriter(PAYLOAD, True),
    ],
)
def test_a_mistake_is_found_before_anything_is_opened(mistaken: Any) -> None:
    with pytest.raises(HeadgateError) as raised:
        mistaken()
    assert 1 == len(str(raised.value).splitlines())
    assert not isinstance(raised.value, PySparkException)
