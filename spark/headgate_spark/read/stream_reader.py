"""A streaming read of a queue: a consumer that reserves ranges of lanes, and settles the batches that Spark has
finished. Why nothing is lost, and which messages may come twice: "Source: a stream" in
docs/internals/protocols/spark.md.

A reader in the driver lives as long as its query; the readers in tasks read the ranges of an offset and do nothing
else. Spark requests the next batch only when it has recorded the previous one as done, which is settled then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from headgate.client.queue import Queue
from headgate.engines.contract import Settled
from headgate.engines.lanes.reservation_by_job import RangeTaken, ReservationNotGranted
from headgate.errors import HeadgateError, Unavailable
from headgate_spark.engines.contract import (
    LIVE,
    Budget,
    LaneReservations,
    Pick,
    RangePlan,
    ReadRange,
    ReservableLane,
    ScanRequest,
)
from headgate_spark.engines.registry import spark_engine
from headgate_spark.options import StreamOptions
from headgate_spark.process.worker_connection import WorkerConnection, process_connection, until_available
from headgate_spark.read.decide_stream_batch import (
    BatchOffset,
    decide_equal_shares,
    pieces,
    raised_shares,
    trimmed,
)

log = logging.getLogger("headgate.spark")

ROW_BYTES_MAX = 256 * 1024 * 1024
RANGES_TRIED = 100
"""The maximum number of inspected ranges of a lane without deliverable messages."""

TRIES, PAUSE_S = 11, 1.0
"""For a server, or the clock of this process, that is unavailable."""


class NotSettled(Unavailable):
    """The result of a batch is not known to be settled."""


@dataclass
class Picked(InputPartition):
    """Rows of one lane, for one task."""

    lane: str
    picks: tuple[Pick, ...]


class QueueStreamReader(DataSourceStreamReader):
    def __init__(self, options: StreamOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._job = uuid4()
        self._out: BatchOffset | None = None
        """The batch that this reader returned last, and has not settled."""
        self._latest: BatchOffset | None = None
        self._settled = -1
        self._turn = 0

    # ---- what Spark calls in the driver

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return BatchOffset(0).to_json()

    def latestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The next batch, reserved; the same as before where there is nothing."""
        return self._process().run(self._next()).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The rows of an offset, lane by lane. A batch that runs again after a restart came from another reader. It
        is this one's now, and has to be settled before the next reservation, or it would come once more."""
        offset = BatchOffset.from_json(end)
        if offset.ranges and offset.number != self._settled:
            self._out = offset
        return [
            Picked(each.lane, some)
            for each in offset.ranges
            for some in pieces(each.picks, self._options.messages_per_split)
        ]

    def commit(self, end: dict[str, Any]) -> None:
        """Settle the messages of a batch, unless this reader has done it."""
        offset = BatchOffset.from_json(end)
        if offset.number != self._settled and offset.ranges:
            self._process().run(self._settle(offset))

    def stop(self) -> None:
        """Reservations are kept: the query may be started again, and continues with them until their deadline."""

    # ---- the calls of a task

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Picked)  # noqa: S101 - Spark returns the result of `partitions`
        process = self._process()
        queue = process.run(self._queue())
        request = ScanRequest(LIVE, ReadRange(), self._columns, self._options.messages_per_split)
        return process.each(spark_engine(queue).scan.read_picked(queue, request, partition.lane, partition.picks))

    # ---- within

    def _process(self) -> WorkerConnection:
        return process_connection(over=self._options.subject.connection)

    async def _queue(self) -> Queue:
        return await self._process().headgate.queue(self._options.subject.name)

    async def _next(self) -> BatchOffset:
        if self._out is not None:
            await self._settle(self._out)
            self._out = None
        queue = await self._queue()
        ranges = await until_available(partial(self._reserve, queue), TRIES, PAUSE_S)
        if ranges or self._latest is None:
            # the first of a reader is a new one in any case, so that Spark commits the batch that was done before a
            # restart
            self._latest = BatchOffset(queue.engine.now_us(), tuple(ranges))
            self._out = self._latest if ranges else None
        return self._latest

    async def _reserve(self, queue: Queue) -> list[RangePlan]:
        """A range of each lane that has something, until the bound is reached; another lane is first each time."""
        now_us = queue.engine.now_us()
        lending = spark_engine(queue).reservations(queue, self._job)
        lanes: Sequence[ReservableLane] = await lending.lanes(from_us=None, until_us=now_us)
        first = self._turn % max(len(lanes), 1)
        self._turn += 1
        left = self._options.messages_per_trigger
        ranges: list[RangePlan] = []
        for lane, share in await _shared_out([*lanes[first:], *lanes[:first]], left):
            plan = await self._reserve_in(lane, min(share, left), now_us + self._options.visibility_us)
            if plan is not None:
                ranges.append(plan)
                left -= plan.messages
            if left <= 0:
                break
        return ranges

    async def _reserve_in(self, lane: ReservableLane, messages_max: int, deadline_us: int) -> RangePlan | None:
        """The next range of a lane with remaining messages; None where there are none, or another job has one."""
        for _ in range(RANGES_TRIED):
            preview = await lane.preview(_budget(messages_max))
            if preview is None:
                return None
            try:
                plan = await lane.reserve(preview, deadline_us)
            except (RangeTaken, ReservationNotGranted):
                return None
            if plan.picks:
                return trimmed(plan, messages_max)
            await lane.give_back(plan)
        return None

    async def _settle(self, offset: BatchOffset) -> None:
        """Settle all messages of a batch; messages that cannot be settled any more are reported, and come again."""
        queue = await self._queue()
        lending = spark_engine(queue).reservations(queue, self._job)
        for plan in offset.ranges:
            try:
                settle = partial(self._settle_range, queue, lending, plan)
                await until_available(settle, TRIES, PAUSE_S)
            except HeadgateError as error:
                log.warning("batch on a lane may not be settled", extra={"error": str(error)})
        self._settled = offset.number

    async def _settle_range(self, queue: Queue, lending: LaneReservations, plan: RangePlan) -> None:
        """Under the reservation of the batch; where that is over, under another."""
        lane = await lending.lane(plan.lane)
        how = await lane.settle(plan, plan.masks)
        if how is Settled.DONE:
            await lane.give_back(plan)
        else:
            deadline_us = queue.engine.now_us() + self._options.visibility_us
            how = await lending.settle_again(plan, plan.masks, deadline_us)
        if how is not Settled.DONE:
            raise NotSettled(lane=plan.lane, how=how.value)
        await lane.pass_over()


async def _shared_out(lanes: Sequence[ReservableLane], bound: int) -> list[tuple[ReservableLane, int]]:
    """The number of messages to take of each lane, by its backlog."""
    shares = decide_equal_shares(bound, len(lanes))
    while True:
        waiting = await asyncio.gather(*(_waiting(lane, share) for lane, share in zip(lanes, shares, strict=True)))
        raised = raised_shares(shares, waiting, bound)
        if raised is None:
            return list(zip(lanes, shares, strict=True))
        shares = raised


async def _waiting(lane: ReservableLane, messages_max: int) -> int:
    """The number of messages in the next reservation, up to about this many."""
    cursor = lane.cursor
    preview = await lane.preview(_budget(messages_max))
    lane.cursor = cursor
    return 0 if preview is None else preview.messages


def _budget(messages_max: int) -> Budget:
    return Budget(messages_max=messages_max, bytes_max=ROW_BYTES_MAX, rows_max=messages_max)
