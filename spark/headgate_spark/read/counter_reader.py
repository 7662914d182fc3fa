"""A batch read of a counter: keys, their values as JSON, and their states as bytes. A split is some buckets."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from headgate.client.counter import Counter, CounterState
from headgate.counters.types.contract import plain
from headgate_spark.connection import process_of
from headgate_spark.options import OptionInvalid, ReadOptions

SPLITS = 16
TYPES = {"key": pa.string(), "value": pa.string(), "state": pa.binary()}


class Buckets(InputPartition):
    """Some buckets of a counter."""


class CounterReader(DataSourceReader):
    """The content of a counter."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        if options.first is not None or options.last is not None:
            raise OptionInvalid(
                "A counter has no positions", remedy="pass since and until, which refer to its windows"
            )
        self._options = options
        self._columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        """Buckets, spread over some splits."""
        count = process_of(self._options.subject).run(self._counter()).handle.settings.buckets
        return [Buckets(tuple(range(first, count, SPLITS))) for first in range(min(SPLITS, count))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The keys of some buckets, a page at a time."""
        process = process_of(self._options.subject)
        counter = process.run(self._counter())
        return process.each(self._pages(counter, partition.value))

    async def _counter(self) -> Counter:
        return await process_of(self._options.subject).headgate.counter(self._options.subject.counter or "")

    async def _pages(self, counter: Counter, buckets: Sequence[int]) -> AsyncIterator[pa.RecordBatch]:
        for bucket in buckets:
            async for page in counter.handle.reader.pages(bucket):
                states = {key: CounterState(counter.kind, each.state) for key, each in page.items()}
                if self._options.since is not None or self._options.until is not None:
                    states = {key: await self._between(counter, key) for key in states}
                if states:
                    yield self._batch(states)

    async def _between(self, counter: Counter, key: str) -> CounterState:
        return await counter.state(key, since=self._options.since, until=self._options.until)

    def _batch(self, states: dict[str, CounterState]) -> pa.RecordBatch:
        made: dict[str, Callable[[], list[Any]]] = {
            "key": lambda: list(states),
            "value": lambda: [json.dumps(plain(each.value())) for each in states.values()],
            "state": lambda: [each.dump() for each in states.values()],
        }
        arrays = [pa.array(made[name](), TYPES[name]) for name in self._columns]
        return pa.RecordBatch.from_arrays(arrays, names=list(self._columns))
