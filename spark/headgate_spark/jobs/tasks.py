"""The functions of a job's tasks on executors: read the messages of a batch or of history, put messages, condense
outcomes.

Spark sends each to its Python workers: its inputs go along, and its module is imported there. It decides nothing; a
task gets the same inputs at every attempt.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar
from zlib import crc32

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from headgate.client.model.outgoing import Put
from headgate.client.queue import Queue
from headgate.client.redriving import DEATH_PREFIX, DEATH_REASON, SOURCE_QUEUE
from headgate.errors import InvalidRequest
from headgate_spark.engines.contract import LIVE, HistorySplit, ReadRange, ScanRequest
from headgate_spark.engines.registry import named_engine, spark_engine
from headgate_spark.jobs.decide_batch import Share
from headgate_spark.process.worker_connection import (
    UnderWay,
    WorkerConnection,
    process_connection,
    until_available,
)
from headgate_spark.schemas import OF_JOBS

ArrowTask = Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]
T = TypeVar("T")

PUT_AT_ONCE = 1_000
"""Their keys, rows and bytes are made in one turn of the loop, which may take no second (clocks.md), also where four
tasks share a core."""
PUTS_AHEAD = 2
"""This many of those may be under way while a task creates the next: each waits for Cassandra three times."""
TRIES, PAUSE_S = 5, 2.0
OTHER_SCOPES = 64
OUTCOMES = pa.schema([("row", pa.binary()), ("outcome", pa.string()), ("mask", pa.binary()), ("reason", pa.string())])
PUTS_DONE = pa.schema([("messages", pa.int64())])


def transform(rows: DataFrame, task: ArrowTask, schema: pa.Schema) -> DataFrame:
    """The rows that tasks make of these."""
    return rows.mapInArrow(task, from_arrow_schema(schema))


def share_out(
    spark: SparkSession,
    environment: Mapping[str, str],
    shares: Sequence[T],
    work: Callable[[WorkerConnection, T], Iterable[pa.RecordBatch]],
    schema: pa.Schema,
) -> DataFrame:
    """The rows of all shares, of which each has a task."""

    def task(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        connection = process_connection(environment)
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from work(connection, shares[number])

    return transform(spark.range(0, len(shares), 1, max(1, len(shares))), task, schema)


@dataclass(frozen=True)
class QueueSource:
    """The queue that tasks read."""

    environment: Mapping[str, str]
    queue: str
    engine: str


def read_picks(queue_name: str, connection: WorkerConnection, share: Share) -> Iterator[pa.RecordBatch]:
    queue = connection.queue(queue_name)
    scan, request = spark_engine(queue).scan, ScanRequest(LIVE, ReadRange(), OF_JOBS, 0)
    for lane, picks in share:
        yield from connection.each(scan.read_picked(queue, request, lane, picks))


def read_history(
    queue_name: str, connection: WorkerConnection, splits: Sequence[HistorySplit]
) -> Iterator[pa.RecordBatch]:
    queue = connection.queue(queue_name)
    scan = spark_engine(queue).scan
    for split in splits:
        yield from connection.each(scan.read_history(queue, split, OF_JOBS))


# ---- outcomes


def condenses(engine: str) -> ArrowTask:
    """Outcomes by rows of the queue: thousands of messages become some bits. Outcomes with reasons stay separate."""

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        ids = named_engine(engine).ids
        masks: dict[tuple[bytes, str, str], int] = {}
        for batch in batches:
            columns = (batch.column(name).to_pylist() for name in ("id", "outcome", "reason"))
            for text, outcome, reason in zip(*columns, strict=True):
                try:
                    row, index = ids.split(str(text))
                except ValueError:
                    raise InvalidRequest("The handler returned an invalid id", id=str(text)[:80]) from None
                at = (row, str(outcome), "" if outcome == "done" else str(reason or ""))
                masks[at] = masks.get(at, 0) | 1 << index
        rows = [
            {"row": row, "outcome": outcome, "mask": _bits(mask), "reason": reason}
            for (row, outcome, reason), mask in masks.items()
        ]
        yield pa.RecordBatch.from_pylist(rows, OUTCOMES)

    return task


def _bits(mask: int) -> bytes:
    return mask.to_bytes((mask.bit_length() + 7) // 8, "little")


# ---- putting


@dataclass(frozen=True)
class Puts:
    """How messages are put into another queue, each once.

    The key of a message is its id under the job and the batch, so a repeated task, or a job that resumes the batch,
    creates no second one. Keys are distributed over scopes so that one conditional batch claims many.
    """

    environment: Mapping[str, str]
    engine: str
    """Of the queue whose ids the messages have."""
    target: str | None
    """None: the source queue of each message."""
    job: str
    number: int
    scope_us: int
    rate: float | None = None
    """Maximum rate per task, in messages per second."""
    keeps_death: bool = False
    dead_of: str | None = None
    """These are dead letters of that queue; the column `reason` contains the reason."""

    def key_of(self, message_id: str) -> tuple[str, str]:
        """The once key and its scope. Both follow from the id and the batch alone. The messages that were put first
        into one lane within an interval claim their keys together; an id that a handler invented has no lane."""
        begin = f"{self.job} {self.number}"
        try:
            scope = named_engine(self.engine).ids.neighbours_of(message_id, self.scope_us)
        except ValueError:
            scope = str(crc32(message_id.encode()) % OTHER_SCOPES)
        return f"{begin} {message_id}", f"{begin} {scope}"


def puts_messages(puts: Puts) -> ArrowTask:
    """Puts all of a task's messages; gives how many."""

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        connection = process_connection(puts.environment)
        queues: dict[str, Queue] = {}
        began_s, done = time.monotonic(), 0
        with UnderWay(connection, PUTS_AHEAD) as under_way:
            for batch in batches:
                for start in range(0, batch.num_rows, PUT_AT_ONCE):
                    by_target = _by_target(puts, batch.slice(start, PUT_AT_ONCE).to_pylist())
                    for target, messages in by_target.items():
                        if target not in queues:
                            queues[target] = connection.queue(target)
                        has_groups = any(message.group is not None for message in messages)
                        # each has a once key: one that was stored, without an answer, is found
                        put = until_available(partial(queues[target].put_many, messages), TRIES, PAUSE_S)
                        under_way.add(put, after_all=has_groups)
                        done += len(messages)
                    if puts.rate is not None:
                        time.sleep(max(0.0, done / puts.rate - (time.monotonic() - began_s)))
        yield pa.RecordBatch.from_pylist([{"messages": done}], PUTS_DONE)

    return task


def _by_target(puts: Puts, rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Put]]:
    """The target of each message. A message without a source queue goes nowhere."""
    by_target: dict[str, list[Put]] = {}
    for row in rows:
        target = puts.target or dict(row["attributes"] or ()).get(SOURCE_QUEUE)
        if target is not None:
            by_target.setdefault(target, []).append(put_of(puts, row))
    return by_target


def put_of(puts: Puts, row: Mapping[str, Any]) -> Put:
    once, scope = puts.key_of(row["id"])
    attributes: dict[str, str | bytes] = dict(row.get("attributes") or ())
    attributes |= dict(row.get("binary_attributes") or ())
    if not puts.keeps_death:
        attributes = {name: value for name, value in attributes.items() if not name.startswith(DEATH_PREFIX)}
    if puts.dead_of is not None:
        attributes |= {SOURCE_QUEUE: puts.dead_of, DEATH_REASON: row.get("reason") or ""}
        attributes[f"{DEATH_PREFIX}attempts"] = str(row.get("attempt") or 0)
    return Put(row["payload"], group=row.get("group"), once=once, once_scope=scope, attributes=attributes)


def load(entry_point: str) -> Callable[..., Any]:
    """The function that `module:function` names; a module may lie where the job is started, as for workers."""
    module, _, path = entry_point.partition(":")
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        function: Any = import_module(module)
        for name in path.split("."):
            function = getattr(function, name)
    except Exception as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise InvalidRequest("The handler cannot be loaded", handler=entry_point, why=why) from None
    if not callable(function):
        raise InvalidRequest("The handler is not a function", handler=entry_point)
    return function  # type: ignore[no-any-return]
