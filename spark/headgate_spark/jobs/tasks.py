"""The functions of a job's tasks on executors: read the messages of a batch or of history, put messages, condense
outcomes.

Each function in this module creates one that Spark sends to its Python workers: its inputs go along, and its module
is imported there. It decides nothing; a task gets the same inputs at every attempt.
"""

from __future__ import annotations

import asyncio
import base64
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import UUID
from zlib import crc32

import pyarrow as pa

from headgate.client.model.outgoing import Put
from headgate.client.queue import Queue
from headgate.client.redriving import DEATH_PREFIX, DEATH_REASON, SOURCE_QUEUE
from headgate.errors import InvalidRequest, Unavailable
from headgate.store.model.positions import time_us_of
from headgate_spark.engines.contract import HistorySplit, ScanRequest
from headgate_spark.engines.registry import spark_engine
from headgate_spark.jobs.decide_batch import BatchPlan, RangePlan
from headgate_spark.options import LIVE
from headgate_spark.process.worker_connection import UnderWay, process_connection
from headgate_spark.read.decide_range import ReadRange
from headgate_spark.schemas import OF_JOBS

ArrowTask = Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]

PUT_AT_ONCE = 1_000
"""Their keys, rows and bytes are made in one turn of the loop, which may take no second (clocks.md), also where four
tasks share a core."""
PUTS_AHEAD = 2
"""This many of those may be under way while a task creates the next: each waits for Cassandra three times."""
TRIES, PAUSE_S = 5, 2.0
LANE_CHARACTERS, ROW_CHARACTERS, INDEX_CHARACTERS = 14, 40, 4
"""An id begins with engine, generation, shard and sub, then comes the row's time, at last the index in the row."""
OTHER_SCOPES = 64
OUTCOME_DDL = "row binary, outcome string, mask binary, reason string"
OUTCOME_SCHEMA = pa.schema(
    [("row", pa.binary()), ("outcome", pa.string()), ("mask", pa.binary()), ("reason", pa.string())]
)
PUT_DDL = "messages bigint"
PUT_SCHEMA = pa.schema([("messages", pa.int64())])


@dataclass(frozen=True)
class QueueSource:
    """The queue that tasks read."""

    environment: Mapping[str, str]
    queue: str


Share = Sequence[tuple[str, RangePlan]]
"""The input of one task: the name of a lane, and picks of it."""


def share_plans(plan: BatchPlan, slices: Sequence[Sequence[tuple[int, int, int]]]) -> list[Share]:
    """The parts of a plan that tasks get: the picks and nothing else."""
    return [
        [
            (one.lane, RangePlan(one.lane, b"", 0, 0, one.picks[start:end]))
            for one, start, end in ((plan.ranges[r], start, end) for r, start, end in of_task)
        ]
        for of_task in slices
    ]


def reads_picks(source: QueueSource, shares: Sequence[Share]) -> ArrowTask:
    """Task n reads share n."""

    def task(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        connection = process_connection(source.environment)
        queue = connection.queue(source.queue)
        scan, request = spark_engine(queue).scan, ScanRequest(LIVE, ReadRange(), OF_JOBS, 0)
        for number in _numbers(numbers):
            for lane, part in shares[number]:
                yield from connection.each(scan.read_picked(queue, request, lane, part.picks))

    return task


def reads_history(source: QueueSource, splits: Sequence[Sequence[HistorySplit]]) -> ArrowTask:
    """Task n reads the splits of n."""

    def task(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        connection = process_connection(source.environment)
        queue = connection.queue(source.queue)
        history = spark_engine(queue).history(queue)
        for number in _numbers(numbers):
            for split in splits[number]:
                yield from connection.each(history.read(split, OF_JOBS))

    return task


def _numbers(batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()


# ---- outcomes


def condense(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Outcomes by rows of the queue: thousands of messages become some bits. Outcomes with reasons stay separate."""
    masks: dict[tuple[bytes, str, str], int] = {}
    for batch in batches:
        ids, outcomes, reasons = (batch.column(name).to_pylist() for name in ("id", "outcome", "reason"))
        for text, outcome, reason in zip(ids, outcomes, reasons, strict=True):
            row, index = _row_and_index(text)
            at = (row, str(outcome), "" if outcome == "done" else str(reason or ""))
            masks[at] = masks.get(at, 0) | 1 << index
    yield pa.RecordBatch.from_arrays(
        [
            pa.array([row for row, _, _ in masks], pa.binary()),
            pa.array([outcome for _, outcome, _ in masks], pa.string()),
            pa.array([mask.to_bytes((mask.bit_length() + 7) // 8, "little") for mask in masks.values()], pa.binary()),
            pa.array([reason for _, _, reason in masks], pa.string()),
        ],
        schema=OUTCOME_SCHEMA,
    )


def _row_and_index(text: object) -> tuple[bytes, int]:
    """The index is the last two bytes. Where they begin a letter, the row, which many messages share, and the index,
    of which there are few, are decoded once."""
    given = str(text)
    try:
        if len(given) % 8 == INDEX_CHARACTERS:
            return _decoded(given[:-INDEX_CHARACTERS]), int.from_bytes(_decoded(given[-INDEX_CHARACTERS:]), "little")
        stored = _decoded(given)
    except ValueError:
        raise InvalidRequest("The handler returned an invalid id", id=given[:80]) from None
    return stored[:-2], int.from_bytes(stored[-2:], "little")


@lru_cache(16_384)
def _decoded(text: str) -> bytes:
    return base64.b32decode(text.upper() + "=" * (-len(text) % 8))


# ---- putting


@dataclass(frozen=True)
class Puts:
    """How messages are put into another queue, each once.

    The key of a message is its id under the job and the batch, so a repeated task, or a job that resumes the batch,
    creates no second one. Keys are distributed over scopes so that one conditional batch claims many.
    """

    environment: Mapping[str, str]
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
        """The once key and its scope: neighbours share one. Both follow from the id and the batch alone."""
        begin = f"{self.job} {self.number}"
        return f"{begin} {message_id}", f"{begin} {scope_of(message_id, self.scope_us)}"


def scope_of(message_id: str, scope_us: int) -> str:
    """The messages that claim their keys together: those that were put first into one lane within an interval. An
    invented id of a handler contains neither."""
    try:
        time_us = _time_us_of(message_id[:ROW_CHARACTERS])
    except ValueError:
        return str(crc32(message_id.encode()) % OTHER_SCOPES)
    return f"{message_id[:LANE_CHARACTERS]} {time_us // scope_us}"


@lru_cache(4_096)
def _time_us_of(row_text: str) -> int:
    return time_us_of(UUID(bytes=_decoded(row_text)[9:25]))


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
                        under_way.add(_until_answered(queues[target], messages), after_all=has_groups)
                        done += len(messages)
                    if puts.rate is not None:
                        time.sleep(max(0.0, done / puts.rate - (time.monotonic() - began_s)))
        yield pa.RecordBatch.from_arrays([pa.array([done], pa.int64())], schema=PUT_SCHEMA)

    return task


def _by_target(puts: Puts, rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Put]]:
    """The target of each message. A message without a source queue goes nowhere."""
    by_target: dict[str, list[Put]] = {}
    for row in rows:
        target = puts.target or dict(row["attributes"] or ()).get(SOURCE_QUEUE)
        if target is not None:
            by_target.setdefault(target, []).append(_put(puts, row))
    return by_target


async def _until_answered(queue: Queue, messages: Sequence[Put]) -> None:
    """Put, and put again where the outcome is not known: each has a once key, so a stored message is found."""
    for attempt in range(1, TRIES + 1):
        try:
            await queue.put_many(messages)
            return
        except Unavailable:
            if attempt == TRIES:
                raise
        await asyncio.sleep(PAUSE_S)


def _put(puts: Puts, row: Mapping[str, Any]) -> Put:
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
