"""A batch read of a queue: plans, reads splits. It takes nothing.

Every filter that is pushed down is also returned to Spark, which applies it to the rows: it only narrows the read
(decide_range.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)

from headgate.client.model.times import time_us_from
from headgate.client.queue import Queue
from headgate.store.model.positions import first_at, last_at, position_order
from headgate_spark.connection import process_of
from headgate_spark.engines.contract import ScanRequest
from headgate_spark.engines.registry import spark_engine
from headgate_spark.options import ReadOptions
from headgate_spark.read.decide_range import ColumnFilter, ReadRange, decide_range

_OPERATORS: tuple[tuple[type[Filter], str], ...] = (
    (EqualTo, "="),
    (GreaterThan, ">"),
    (GreaterThanOrEqual, ">="),
    (LessThan, "<"),
    (LessThanOrEqual, "<="),
    (In, "in"),
)


class Split(InputPartition):
    """One split of an engine."""


class QueueReader(DataSourceReader):
    """Messages of one queue, as they are now or as they are kept."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._wanted = ReadRange(options.first, options.last)

    def partitions(self) -> Sequence[InputPartition]:
        """Plan."""
        process = process_of(self._options.subject)

        async def planned() -> Sequence[Any]:
            queue = await self._queue()
            return await spark_engine(queue).scan.plan(queue, self._request())

        # of no split at all Spark would make one of nothing, which is not a split
        return [Split(split) for split in process.run(planned())] or [Split(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of one split."""
        process = process_of(self._options.subject)
        queue = process.run(self._queue())
        return process.each(spark_engine(queue).scan.read(queue, self._request(), partition.value))

    async def _queue(self) -> Queue:
        return await process_of(self._options.subject).headgate.queue(self._options.subject.queue or "")

    def _request(self) -> ScanRequest:
        return ScanRequest(self._options.state, self._wanted, self._columns, self._options.messages_per_split)


class FilteredReader(QueueReader):
    """A reader that Spark's filters narrow. Only for a DataFrame that is filtered once and for all: in Spark 4.1 all
    queries built on one DataFrame, filtered or not, share its last pushed-down filter."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Narrow the read; Spark applies all of them again."""
        column_filters = [one for each in filters if (one := column_filter_of(each)) is not None]
        self._wanted = decide_range(
            self._wanted,
            column_filters,
            first_at=lambda us: position_order(first_at(us)),
            last_at=lambda us: position_order(last_at(us)),
        )
        return filters


def column_filter_of(filter_: Filter) -> ColumnFilter | None:
    """A filter as a value that knows nothing of Spark; None where it is of another kind."""
    for kind, operator in _OPERATORS:
        if type(filter_) is kind:
            attribute: tuple[str, ...] = filter_.attribute  # type: ignore[attr-defined]  # each of these kinds has it
            value: Any = filter_.value  # type: ignore[attr-defined]
            if isinstance(value, datetime):
                if value.tzinfo is None:
                    return None
                value = time_us_from(value, attribute[0])
            return ColumnFilter(attribute[0], operator, value) if len(attribute) == 1 else None
    return None
