"""Writes rows into queues and counters, each once: a batch, or the batches of a streaming query ("Sink" in
docs/internals/protocols/spark.md). A task opens its process's connection, makes sure of the batch's mark, and puts
pieces.

A put without an answer is repeated under the same keys. A failed task leaves its rows, and the next one that writes
the same rows finds them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
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
from headgate.errors import Bug, Unavailable
from headgate_spark.connection import process_of
from headgate_spark.options import OptionInvalid, WriteOptions
from headgate_spark.write.decide_marks import Mark, require_remembered
from headgate_spark.write.marks import BatchMarks
from headgate_spark.write.rows_to_put import CounterUpdateRow, Keys, pieces, put_of, update_of
from headgate_spark.write.token_keys import RowKeys, TaskName, token_name

TRIES = 5
PAUSE_S = 2.0
UPDATES_AT_ONCE = 1_000
QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"
"""Spark's properties for the tasks of a streaming query."""


@dataclass
class WriteReceipt(WriterCommitMessage):
    """How many rows a task wrote."""

    rows: int


@dataclass(frozen=True)
class RowWriter:
    """The work of a task: the same for batches and streams."""

    options: WriteOptions

    def write(self, batches: Iterator[pa.RecordBatch], task: TaskName) -> WriteReceipt:
        """Write all rows of a task's partition."""
        process = process_of(self.options.subject)
        row_keys = RowKeys(task) if self.options.exactly_once else None
        keys = Keys(row_keys, self.options.key_column)
        target = process.run(self._open(process.headgate, task))
        rows = 0
        for piece in pieces(batches, self.options.puts_at_once):
            process.run(target.write(piece, keys))
            rows += len(piece)
        return WriteReceipt(rows)

    async def _open(self, connection: Headgate, task: TaskName) -> QueueTarget | CounterTarget:
        options = self.options
        target: QueueTarget | CounterTarget
        if options.subject.counter is not None:
            target = CounterTarget(await connection.counter(options.subject.counter), task)
        else:
            target = QueueTarget(await connection.queue(options.subject.queue or ""))
        if options.exactly_once:
            process_context = connection.process_context
            await process_context.clock.until_trusted(TRIES * PAUSE_S)
            marks = BatchMarks(
                process_context.store_in(process_context.keyspace),
                target.subject.entry.id,
                process_context.clock.require,
                process_context.new_uuid,
            )
            mine = Mark(task.batch, process_context.clock.require(), options.key_column or "")
            target.mark = await marks.begin(
                task.query, mine, remembered_us=target.remembered_us, skew_us=target.skew_us
            )
            target.now_us = process_context.clock.require
        return target


class QueueTarget:
    """A queue that is written to."""

    def __init__(self, queue: Queue) -> None:
        self.subject = queue
        self.mark: Mark | None = None
        self.now_us: Any = None
        settings = queue.engine.settings
        self.remembered_us = settings.once_window_us
        self.skew_us = settings.skew_us

    async def write(self, piece: Sequence[dict[str, Any]], keys: Keys) -> None:
        """Put some rows, each under its key."""
        puts = [put_of(row, keys.key_of(row)) for row in piece]
        await _until_answered(self, lambda: self.subject.put_many(puts))


class CounterTarget:
    """A counter that is updated."""

    def __init__(self, counter: Counter, task: TaskName) -> None:
        self.subject = counter
        self.mark: Mark | None = None
        self.now_us: Any = None
        settings = counter.handle.settings
        self.remembered_us = settings.token_window_us + 60_000_000
        self.skew_us = settings.skew_us
        self._task = task

    async def write(self, piece: Sequence[dict[str, Any]], keys: Keys) -> None:
        """Count some rows, each under its token."""
        updates = [update_of(row, keys.key_of(row)) for row in piece]
        for first in range(0, len(updates), UPDATES_AT_ONCE):
            some = updates[first : first + UPDATES_AT_ONCE]
            await _until_answered(self, partial(self._count, some))

    async def _count(self, updates: Sequence[CounterUpdateRow]) -> None:
        sent = [
            self.subject.update(each.verb, each.key, *each.arguments, token=self._token(each)) for each in updates
        ]
        ended = await asyncio.gather(*sent, return_exceptions=True)
        for error in ended:
            if isinstance(error, BaseException):
                raise error

    def _token(self, update: CounterUpdateRow) -> str | None:
        if update.name is None or self.mark is None:
            return None
        task = f"{self._task.query} {self._task.batch}"
        return f"{self.mark.begun_us // 1_000_000:010d}-{token_name(task, update.name)}"


async def _until_answered(target: QueueTarget | CounterTarget, write: Any) -> None:
    """Write, and again where the end is not known: under a key that is safe, as long as keys are remembered. Without
    keys a task that fails is run again as a whole."""
    for attempt in range(1, TRIES + 1):
        try:
            if target.mark is not None:
                require_remembered(
                    target.mark, now_us=target.now_us(), remembered_us=target.remembered_us, skew_us=target.skew_us
                )
            await write()
            return
        except Unavailable:
            if target.mark is None or attempt == TRIES:
                raise
        await asyncio.sleep(PAUSE_S)


class ArrowWriter(DataSourceArrowWriter):
    """A batch write: one job, under a name of its own or the user's."""

    def __init__(self, options: WriteOptions, *, overwrite: bool) -> None:
        refuse_overwrite(overwrite)
        self._rows = RowWriter(options)
        self._query = options.query or uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write a partition."""
        return self._rows.write(iterator, TaskName(self._query, 0, _context().partitionId()))


class StreamWriter(DataSourceStreamArrowWriter):
    """A streaming write: batch by batch, under the query's id, which its checkpoint keeps."""

    def __init__(self, options: WriteOptions, *, overwrite: bool) -> None:
        refuse_overwrite(overwrite)
        self._rows = RowWriter(options)
        self._query = options.query

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write a partition of a batch."""
        context = _context()
        query = self._query or context.getLocalProperty(QUERY_ID)
        batch = context.getLocalProperty(BATCH_ID)
        if not query or batch is None:
            raise Bug("Spark passes a task neither its query nor its batch", query=query, batch=batch)
        return self._rows.write(iterator, TaskName(query, int(batch), context.partitionId()))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """All of it is durable already."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Written rows stay, and are recognized by their keys when the batch is written again."""


def refuse_overwrite(overwrite: bool) -> None:
    """A queue is added to; so is a counter."""
    if overwrite:
        raise OptionInvalid(
            "A queue or a counter supports only append, not overwrite", remedy='write with mode("append")'
        )


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise Bug("Rows can only be written in a Spark task")
    return context
