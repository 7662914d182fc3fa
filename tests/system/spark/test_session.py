"""The session has what sources and jobs rest on, also in the processes of its workers."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

from headgate_spark.process.session import NEEDED, executors


def test_what_is_needed_is_set(spark: SparkSession) -> None:
    assert dict(NEEDED) == {key: spark.conf.get(key) for key in NEEDED}


def test_on_one_machine_there_is_no_executor_but_the_driver(spark: SparkSession) -> None:
    assert 0 == executors(spark)


def test_workers_import_headgate_and_speak_arrow(spark: SparkSession) -> None:
    def named(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import headgate_spark

        for batch in batches:
            names = pa.array([headgate_spark.__name__] * batch.num_rows)
            yield pa.RecordBatch.from_arrays([names], names=["name"])

    rows = spark.range(0, 4, numPartitions=2).mapInArrow(named, "name string").collect()
    assert ["headgate_spark"] * 4 == [row.name for row in rows]
