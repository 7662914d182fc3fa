"""Writes rows into queues and counters, each once: a batch, or the batches of a streaming query ("Sink" in
docs/internals/protocols/spark.md). A task opens its process's connection, makes sure of the batch's mark, and puts
pieces.

A put without an answer is repeated under the same keys. A failed task leaves its rows, and the next one that writes
the same rows finds them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from headgate.client.connection import Headgate
from headgate.client.counter import Counter
from headgate.client.queue import Queue
from headgate.errors import Bug
from headgate_spark.options import OptionInvalid, WriteOptions
from headgate_spark.process.worker_connection import process_connection, until_available
from headgate_spark.write.decide_marks import Mark, require_remembered
from headgate_spark.write.marks import BatchMarks
from headgate_spark.write.rows_to_put import (
    CounterUpdateRow,
    RowKeys,
    TaskName,
    pieces,
    put_of,
    token_name,
    update_of,
)

TRIES, PAUSE_S = 5, 2.0
UPDATES_AT_ONCE = 1_000
QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"
"""Spark's properties for the tasks of a streaming query."""


@dataclass
class WriteReceipt(WriterCommitMessage):
    rows: int


class _Target:
    """The queue or counter that a task writes to, under the mark of its batch; without one keys are not used."""

    def __init__(self, subject: Queue | Counter, task: TaskName, *, remembered_us: int, skew_us: int) -> None:
        self._task = task
        self._mark: Mark | None = None
        self._now_us: Callable[[], int] = lambda: 0
        self._creation = subject.entry.id
        self._bounds = {"remembered_us": remembered_us, "skew_us": skew_us}

    async def begin(self, connection: Headgate, key_column: str | None) -> None:
        """Set the mark of the batch, or find it set by another task."""
        process_context = connection.process_context
        await process_context.clock.until_trusted(TRIES * PAUSE_S)
        self._now_us = process_context.clock.require
        store = process_context.store_in(process_context.keyspace)
        marks = BatchMarks(store, self._creation, process_context.new_uuid)
        mine = Mark(self._task.batch, self._now_us(), key_column or "")
        self._mark = await marks.begin(self._task.query, mine, **self._bounds)

    async def write(self, piece: Sequence[dict[str, Any]], keys: RowKeys | None) -> None:
        raise NotImplementedError

    async def _until_answered(self, write: Callable[[], Awaitable[object]]) -> None:
        """Write, and again where the end is not known: under a key that is safe, as long as keys are remembered.
        Without keys a task that fails is run again as a whole."""

        async def write_remembered() -> None:
            if self._mark is not None:
                require_remembered(self._mark, now_us=self._now_us(), **self._bounds)
            await write()

        await until_available(write_remembered, 1 if self._mark is None else TRIES, PAUSE_S)


class QueueTarget(_Target):
    def __init__(self, queue: Queue, task: TaskName) -> None:
        settings = queue.engine.settings
        super().__init__(queue, task, remembered_us=settings.once_window_us, skew_us=settings.skew_us)
        self._queue = queue

    async def write(self, piece: Sequence[dict[str, Any]], keys: RowKeys | None) -> None:
        puts = [put_of(row, None if keys is None else keys.key_of(row)) for row in piece]
        await self._until_answered(partial(self._queue.put_many, puts))


class CounterTarget(_Target):
    def __init__(self, counter: Counter, task: TaskName) -> None:
        settings = counter.handle.settings
        remembered_us = settings.token_window_us + 60_000_000
        super().__init__(counter, task, remembered_us=remembered_us, skew_us=settings.skew_us)
        self._counter = counter

    async def write(self, piece: Sequence[dict[str, Any]], keys: RowKeys | None) -> None:
        """Count some rows, each under its token."""
        updates = [update_of(row, None if keys is None else keys.key_of(row)) for row in piece]
        for first in range(0, len(updates), UPDATES_AT_ONCE):
            await self._until_answered(partial(self._count, updates[first : first + UPDATES_AT_ONCE]))

    async def _count(self, updates: Sequence[CounterUpdateRow]) -> None:
        sent = [
            self._counter.update(each.verb, each.key, *each.arguments, token=self._token(each)) for each in updates
        ]
        ended = await asyncio.gather(*sent, return_exceptions=True)
        for error in ended:
            if isinstance(error, BaseException):
                raise error

    def _token(self, update: CounterUpdateRow) -> str | None:
        if update.name is None or self._mark is None:
            return None
        task = f"{self._task.query} {self._task.batch}"
        return f"{self._mark.begun_us // 1_000_000:010d}-{token_name(task, update.name)}"


def write_rows(options: WriteOptions, batches: Iterator[pa.RecordBatch], task: TaskName) -> WriteReceipt:
    """Write all rows of a task's partition."""
    process = process_connection(over=options.subject.connection)
    target: _Target
    if options.subject.counter is not None:
        target = CounterTarget(process.run(process.headgate.counter(options.subject.counter)), task)
    else:
        target = QueueTarget(process.queue(options.subject.name), task)
    keys = RowKeys(task, options.key_column) if options.exactly_once else None
    if keys is not None:
        process.run(target.begin(process.headgate, options.key_column))
    rows = 0
    for piece in pieces(batches, options.puts_at_once):
        process.run(target.write(piece, keys))
        rows += len(piece)
    return WriteReceipt(rows)


class ArrowWriter(DataSourceArrowWriter):
    """A batch write: one job, under a name of its own or the user's."""

    def __init__(self, options: WriteOptions, *, overwrite: bool) -> None:
        refuse_overwrite(overwrite)
        self._options = options
        self._query = options.query or uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_rows(self._options, iterator, TaskName(self._query, 0, _context().partitionId()))


class StreamWriter(DataSourceStreamArrowWriter):
    """A streaming write: batch by batch, under the query's id, which its checkpoint keeps."""

    def __init__(self, options: WriteOptions, *, overwrite: bool) -> None:
        refuse_overwrite(overwrite)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = _context()
        query = self._options.query or context.getLocalProperty(QUERY_ID)
        batch = context.getLocalProperty(BATCH_ID)
        if not query or batch is None:
            raise Bug("Spark passes a task neither its query nor its batch", query=query, batch=batch)
        return write_rows(self._options, iterator, TaskName(query, int(batch), context.partitionId()))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """All of it is durable already."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Written rows stay, and are recognized by their keys when the batch is written again."""


def refuse_overwrite(overwrite: bool) -> None:
    if overwrite:
        raise OptionInvalid(
            "A queue or a counter supports only append, not overwrite", remedy='write with mode("append")'
        )


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise Bug("Rows can only be written in a Spark task")
    return context
