"""The source and sink `headgate` of Spark: Spark's calls, passed on to the readers and writers of queues and
counters.

    from headgate_spark.datasource import register
    register(spark)
    spark.read.format("headgate").load("shop/emails")

Options, columns and guarantees: docs/spark.md and docs/internals/protocols/spark.md. Nothing is opened in a
constructor: readers and writers are pickled, and work in other processes.
"""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from headgate_spark.options import Subject, WriteOptions, read_options, stream_options, write_options
from headgate_spark.process.session import FILTER_PUSHDOWN
from headgate_spark.process.worker_connection import spare_archives
from headgate_spark.read.batch_readers import CounterReader, FilteredReader, QueueReader
from headgate_spark.read.stream_reader import QueueStreamReader
from headgate_spark.schemas import COUNTER, PUT, QUEUE, UPDATE, check_read, check_write, schema_of
from headgate_spark.write.writers import ArrowWriter, StreamWriter


class HeadgateDataSource(DataSource):
    """Queues and counters of Headgate."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        spare_archives()  # the Python worker that makes it is kept, and makes others

    @classmethod
    def name(cls) -> str:
        return "headgate"

    def schema(self) -> StructType:
        """All columns; `.schema(...)` selects some of them."""
        subject = self._subject()
        return schema_of(QUEUE if subject.counter is None else COUNTER)

    def _subject(self) -> Subject:
        """The target, from options that may be those of a batch or of a stream."""
        options = {name.lower() for name in self.options}
        if options & {"maxmessagespertrigger", "visibility"}:
            return stream_options(self.options).subject
        return read_options(self.options).subject

    def reader(self, schema: StructType) -> DataSourceReader:
        options = read_options(self.options)
        if options.subject.counter is not None:
            check_read(schema, COUNTER)
            return CounterReader(options, tuple(schema.fieldNames()))
        check_read(schema, QUEUE)
        kind = FilteredReader if options.push_filters else QueueReader
        return kind(options, tuple(schema.fieldNames()))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Of a stream: a consumer of the queue."""
        options = stream_options(self.options)
        check_read(schema, QUEUE)
        return QueueStreamReader(options, tuple(schema.fieldNames()))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return ArrowWriter(self._write_options(schema), overwrite=overwrite)

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamArrowWriter:
        return StreamWriter(self._write_options(schema), overwrite=overwrite)

    def _write_options(self, schema: StructType) -> WriteOptions:
        options = write_options(self.options)
        columns, needed = (PUT, "payload") if options.subject.counter is None else (UPDATE, "key")
        check_write(schema, columns, needed=needed, key_column=options.key_column)
        return options


def register(spark: SparkSession) -> SparkSession:
    """Make `headgate` known to a session. The session stays the user's: nothing that changes other queries is set."""
    spark.conf.set(FILTER_PUSHDOWN, "true")
    spark.dataSource.register(HeadgateDataSource)
    return spark
