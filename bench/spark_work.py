"""The work of bench-spark: the messages to read, the contenders, and the puts. The same messages for all.

The connector reads a table with one row per message, in partitions of a thousand: a typical table without packed
rows, and well distributed, which is best for it.
"""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

import headgate
from bench.contender import Job
from bench.timeline_work import PAYLOADS
from headgate import Put
from headgate.store.model.shapes import insert_shape
from headgate.store.model.statements import RowsOf
from headgate.store.model.table import Column, Table
from headgate.store.model.types import Type

MESSAGES = 1_000_000
PACKED, SCHEDULED = "bench/packed", "bench/scheduled"
ROWS_A_PARTITION = 1_000
PUT_AT_ONCE = 20_000
AHEAD = timedelta(hours=1)
SPREAD = timedelta(minutes=30)
STREAM = UUID(int=1)

ROWS = Table(
    "spark_rows",
    "one row per message, for the connector",
    partition=(Column("stream", Type.UUID), Column("bucket", Type.INT)),
    clustering=(Column("seq", Type.BIGINT),),
    columns=(Column("payload", Type.BLOB), Column("due_us", Type.BIGINT), Column("put_us", Type.BIGINT)),
)
QUEUES = "\n---\n".join(
    f"""apiVersion: headgate.io/v1beta1
kind: Queue
metadata: {{name: {name.split("/")[1]}, namespace: bench}}
spec: {{shards: 4}}"""
    for name in (PACKED, SCHEDULED)
)


class Read(StrEnum):
    """The data that one window reads."""

    PACKED = "packed"
    SCHEDULED = "scheduled"
    CONNECTOR = "connector"


@dataclass(frozen=True)
class Work:
    """The request to the reading process."""

    read: Read
    messages: int
    seconds: float

    def job(self) -> Job:
        """As JSON carries it."""
        return asdict(self)


def work_of(job: Job) -> Work:
    """The way back."""
    return Work(Read(job["read"]), job["messages"], job["seconds"])


async def fill(environment: dict[str, str], keyspace: str, work: Work) -> None:
    """Put the messages that a window of this kind reads."""
    payloads = itertools.cycle(PAYLOADS)
    async with headgate.connect(environment) as opened:
        if work.read is Read.CONNECTOR:
            await _fill_table(opened, keyspace, work.messages, payloads)
            return
        queue = await opened.queue(PACKED if work.read is Read.PACKED else SCHEDULED)
        start, step = datetime.now(UTC) + AHEAD, SPREAD / work.messages
        for first in range(0, work.messages, PUT_AT_ONCE):
            count = min(PUT_AT_ONCE, work.messages - first)
            if work.read is Read.PACKED:
                await queue.put_many(itertools.islice(payloads, count))
            else:
                await queue.put_many(
                    Put(next(payloads), deliver_at=start + step * at) for at in range(first, first + count)
                )


async def _fill_table(opened: Any, keyspace: str, messages: int, payloads: Any) -> None:
    shape = insert_shape(ROWS, ("stream", "bucket", "seq", "payload", "due_us", "put_us"), False)
    store = opened.process_context.store_in(keyspace)
    now_us = opened.now_us()

    async def write(bucket: int) -> None:
        seqs = range(bucket * ROWS_A_PARTITION, min((bucket + 1) * ROWS_A_PARTITION, messages))
        for some in (seqs[:500], seqs[500:]):
            tails = [(seq, next(payloads), now_us + seq, now_us) for seq in some]
            if tails:
                await store.write(RowsOf(shape, (STREAM, bucket), tails, [(now_us, None)] * len(tails)))

    buckets = -(-messages // ROWS_A_PARTITION)
    for first in range(0, buckets, 16):
        await asyncio.gather(*(write(bucket) for bucket in range(first, min(first + 16, buckets))))
