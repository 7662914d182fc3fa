"""Batch reads of queues and counters: each plans its splits, and reads them. They take nothing.

Every filter that is pushed down is also returned to Spark, which applies it to the rows: it only narrows the read
(decide_range.py).
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
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

from headgate.client.counter import Counter, CounterState
from headgate.client.model.times import time_us_from
from headgate.counters.types.contract import plain
from headgate.store.model.positions import first_at, last_at, position_order
from headgate_spark.engines.contract import ReadRange, ScanRequest
from headgate_spark.engines.registry import spark_engine
from headgate_spark.options import OptionInvalid, ReadOptions
from headgate_spark.process.worker_connection import WorkerConnection, process_connection
from headgate_spark.read.decide_range import ColumnFilter, decide_range
from headgate_spark.schemas import COUNTER_TYPES

BUCKET_SPLITS = 16
_OPERATORS: dict[type[Filter], str] = {
    EqualTo: "=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
    In: "in",
}


class Split(InputPartition):
    """One split of an engine, or some buckets of a counter."""


class QueueReader(DataSourceReader):
    """Messages of one queue, as they are now or as they are kept."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._wanted = ReadRange(options.first, options.last)

    def partitions(self) -> Sequence[InputPartition]:
        process = process_connection(over=self._options.subject.connection)
        queue = process.queue(self._options.subject.name)
        # of no split at all Spark would make one of nothing, which is not a split
        splits = process.run(spark_engine(queue).scan.plan(queue, self._request()))
        return [Split(split) for split in splits] or [Split(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        process = process_connection(over=self._options.subject.connection)
        queue = process.queue(self._options.subject.name)
        return process.each(spark_engine(queue).scan.read(queue, self._request(), partition.value))

    def _request(self) -> ScanRequest:
        return ScanRequest(self._options.state, self._wanted, self._columns, self._options.messages_per_split)


class FilteredReader(QueueReader):
    """A reader that Spark's filters narrow. Only for a DataFrame that is filtered once and for all: in Spark 4.1 all
    queries built on one DataFrame, filtered or not, share its last pushed-down filter."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
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
    operator = _OPERATORS.get(type(filter_))
    if operator is None:
        return None
    attribute: tuple[str, ...] = filter_.attribute  # type: ignore[attr-defined]  # each of these kinds has it
    value: Any = filter_.value  # type: ignore[attr-defined]
    if isinstance(value, datetime):
        if value.tzinfo is None:
            return None
        value = time_us_from(value, attribute[0])
    return ColumnFilter(attribute[0], operator, value) if len(attribute) == 1 else None


class CounterReader(DataSourceReader):
    """The content of a counter: keys, their values as JSON, and their states as bytes."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        if options.first is not None or options.last is not None:
            raise OptionInvalid(
                "A counter has no positions", remedy="pass since and until, which refer to its windows"
            )
        self._options = options
        self._columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        count = self._open()[1].handle.settings.buckets
        return [Split(tuple(range(first, count, BUCKET_SPLITS))) for first in range(min(BUCKET_SPLITS, count))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        process, counter = self._open()
        return process.each(self._pages(counter, partition.value))

    def _open(self) -> tuple[WorkerConnection, Counter]:
        process = process_connection(over=self._options.subject.connection)
        return process, process.run(process.headgate.counter(self._options.subject.name))

    async def _pages(self, counter: Counter, buckets: Sequence[int]) -> AsyncIterator[pa.RecordBatch]:
        since, until = self._options.since, self._options.until
        for bucket in buckets:
            async for page in counter.handle.reader.pages(bucket):
                states = {key: CounterState(counter.kind, each.state) for key, each in page.items()}
                if since is not None or until is not None:
                    states = {key: await counter.state(key, since=since, until=until) for key in states}
                if states:
                    yield self._batch(states)

    def _batch(self, states: dict[str, CounterState]) -> pa.RecordBatch:
        made: dict[str, Callable[[], list[Any]]] = {
            "key": lambda: list(states),
            "value": lambda: [json.dumps(plain(each.value())) for each in states.values()],
            "state": lambda: [each.dump() for each in states.values()],
        }
        arrays = [pa.array(made[name](), COUNTER_TYPES[name]) for name in self._columns]
        return pa.RecordBatch.from_arrays(arrays, names=list(self._columns))
