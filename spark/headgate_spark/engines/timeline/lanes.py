"""Lanes of timeline queues for bulk jobs: `contract.py` on `headgate.engines.lanes.range_reserver`, and history by
parts.

A lane is named `generation/shard`. A job reads a lane from its position on, one range after the other. The range is
inspected first, so that a reservation is short, and then reserved. `ReservedRange` determines the job's part of it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any
from uuid import UUID

import pyarrow as pa

from headgate.client.queue import Queue
from headgate.engines.context import Host
from headgate.engines.contract import Settled
from headgate.engines.lanes.decide_lease import LeaseTerm
from headgate.engines.lanes.lane_name import LaneName, format_lane, parse_lane
from headgate.engines.lanes.lease import Lane
from headgate.engines.lanes.range_reserver import (
    GrantedReservation,
    RangeReserver,
    ReservedRange,
    ReservedRow,
)
from headgate.engines.lanes.rows import LaneRow
from headgate.engines.lanes.settle_log_format import Facts, RowFacts
from headgate.engines.lanes.source import RangeReservation
from headgate.engines.timeline.lanes.timeline_lanes import lane_of
from headgate.engines.timeline.model.layout import MessagePlace, RowPlace
from headgate.engines.timeline.model.settings import TimelineSettings
from headgate.engines.timeline.read.part_list import parts_from
from headgate.engines.timeline.read.reading import RowContent
from headgate.engines.timeline.read.source import TimelineSource, unpack_reservation
from headgate.engines.timeline.repair.skip_settled import pass_over_settled
from headgate.errors import HeadgateError
from headgate.expiry import Promise
from headgate.process.live import Live
from headgate.store.model.positions import first_at, position_order, time_us_of
from headgate_spark.decide_range import ReadRange
from headgate_spark.decide_splits import SplitStretch
from headgate_spark.engines.contract import Budget, HistorySplit, Preview, ScanRequest
from headgate_spark.engines.timeline.rows import read_split
from headgate_spark.engines.timeline.scan import engine_of
from headgate_spark.jobs.decide_batch import BatchPlan, Pick, RangePlan, Spot
from headgate_spark.options import HISTORY

SLICE_BYTES = 1024 * 1024
OWNED = Budget(messages_max=20_000, bytes_max=3 * 1024 * 1024, rows_max=4_000)
"""The maximum of one reservation of a lane that has an owner: reserved rows count as read ahead for it, and as
holes."""


class TimelineLending:
    """The lanes of one queue, for the driver of a job."""

    def __init__(self, queue: Queue, job: UUID) -> None:
        self._queue = queue
        self._job = job

    async def lanes(self, *, from_us: int | None, until_us: int) -> Sequence[TimelineLane]:
        """Of all generations those that were not left."""
        first = 0 if from_us is None else position_order(first_at(from_us))
        last = position_order(first_at(until_us)) - 1
        lanes = []
        for generation in engine_of(self._queue).settings.generations:
            for shard in range(generation.shards):
                lane = TimelineLane(self._queue, self._job, (generation.number, shard))
                state = await lane.lane.read_state()
                if state is not None and not state.is_retired:
                    lane.cursor = max(first - 1, lane.source().order_of(state.last))
                    lane.until = last
                    lanes.append(lane)
        return lanes

    async def lane(self, name: str) -> TimelineLane:
        """One of them."""
        return TimelineLane(self._queue, self._job, parse_lane(name))

    async def settle_again(self, plan: RangePlan, masks: Mapping[int, int], deadline_us: int) -> Settled:
        """Reserve the span of the picks, and settle their live messages."""
        lane = await self.lane(plan.lane)
        orders = [_order_of(plan.picks[index].key) for index in masks]
        plan_again = await lane.reserve(Preview(min(orders), max(orders), 0), deadline_us)
        live = {pick.key: pick.mask for pick in plan_again.picks}
        left = {at: mask & live.get(plan.picks[at].key, 0) for at, mask in masks.items()}
        how = await lane.settle(
            RangePlan(plan.lane, plan_again.reservation, plan_again.epoch, plan_again.deadline_us, plan.picks),
            {at: mask for at, mask in left.items() if mask},
        )
        await lane.give_back(plan_again)
        return how


class TimelineLane:
    """One lane, for the driver of a job."""

    def __init__(self, queue: Queue, job: UUID, lane: LaneName) -> None:
        self.name = format_lane(lane)
        self.cursor = 0
        """This run has inspected everything up to this order."""
        self.until = 0
        self._queue = queue
        self._job = job
        self._at = lane
        self.lane: Lane = lane_of(self._host, self._settings, lane)

    @property
    def _host(self) -> Host:
        return engine_of(self._queue).host

    @property
    def _settings(self) -> TimelineSettings:
        return engine_of(self._queue).settings

    def source(self) -> TimelineSource:
        """A source with a writer of its own: two that settle never share one."""
        generation, shard = self._at
        lease_term = LeaseTerm(self._host.uuid(), 0, Promise.until(0, sent_us=0), None, 0, True, 0)
        sender = engine_of(self._queue).producer.sender
        return TimelineSource(
            self._host, sender, Live(None), generation=generation, shard=shard, lease_term=lease_term
        )

    async def preview(self, budget: Budget) -> Preview | None:
        """The next range, about as large as the budget allows; less of a lane with an owner."""
        state = await self.lane.read_state()
        if state is None or state.is_retired or self.cursor >= self.until:
            return None
        if state.lock is not None:
            budget = _smaller(budget, OWNED)
        source = self.source()
        source.purge(state.purged_before_us)
        reached, messages = await self._reach(source, budget)
        preview = Preview(self.cursor + 1, reached, messages)
        self.cursor = reached if messages else self.until
        return preview if messages else None

    async def _reach(self, source: TimelineSource, budget: Budget) -> tuple[int, int]:
        """The end of the budget, to the row, and the approximate number of messages up to it; skipped rows without
        live messages cost none of it. The record lists the messages of a row that were reserved and settled
        before."""
        reached, messages, bytes_, rows = self.cursor, 0, 0, 0
        facts: dict[Any, Facts] = {}
        while reached < self.until:
            piece = await source.read(reached, bytes_max=SLICE_BYTES)
            for row in piece.rows:
                if row.order > self.until:
                    return self.until, messages
                if row.where not in facts:
                    facts[row.where] = await source.known(row.order, row.order)
                live = _live(row, facts[row.where].get(row.key), self._host.now_us())
                if not live:
                    continue
                messages, rows, bytes_ = messages + live, rows + 1, bytes_ + row.size_bytes
                if messages >= budget.messages_max or bytes_ >= budget.bytes_max or rows >= budget.rows_max:
                    return row.order, messages
            reached = min(piece.reached, self.until)
            if not piece.more:
                break
        return reached, messages

    async def reserve(self, preview: Preview, deadline_us: int) -> RangePlan:
        """Reservations that earlier runs of this job left are released first: their driver no longer drives it."""
        source = self.source()
        await self._end_own_reservation()
        reserver = RangeReserver(self._host, self.lane, source)
        reserved = await reserver.reserve(RangeReservation(self._job, preview.first, preview.last, deadline_us))
        try:
            picks, aliases = await self._picks(ReservedRange(self._host, self.lane, source, reserved))
        except HeadgateError:
            await reserver.give_back(reserved)
            raise
        span_us = time_us_of(_due_of(picks[-1].key)) - time_us_of(_due_of(picks[0].key)) if picks else 0
        return RangePlan(self.name, reserved.stored, reserved.epoch, deadline_us, tuple(picks), aliases, span_us)

    async def _picks(self, reserved: ReservedRange) -> tuple[list[Pick], dict[bytes, tuple[int, int]]]:
        picks: list[Pick] = []
        aliases: dict[bytes, tuple[int, int]] = {}
        async for each in reserved.rows():
            content: RowContent = each.row.content
            if content.run is None:
                continue
            for index, id_ in enumerate(content.run.message_id or ()):
                if id_ and each.mine >> index & 1:
                    aliases[id_] = (len(picks), index)
            picks.append(Pick(each.row.where, each.row.key, each.mine))
        return picks, aliases

    async def _end_own_reservation(self) -> None:
        state = await self.lane.read_state()
        if state is not None and state.reserved is not None and unpack_reservation(state.reserved).job == self._job:
            await self.lane.end_reservation(state.reserved)

    async def settle(self, plan: RangePlan, masks: Mapping[int, int]) -> Settled:
        """Under a writer uuid of its own, within the deadline."""
        reserved = GrantedReservation(unpack_reservation(plan.reservation), plan.reservation, plan.epoch, frozenset())
        rows = [_reserved_row(plan.picks[at], mask) for at, mask in masks.items() if mask]
        return (
            await ReservedRange(self._host, self.lane, self.source(), reserved).settle(rows) if rows else Settled.DONE
        )

    async def give_back(self, plan: RangePlan) -> None:
        """The owner's again."""
        await self.lane.end_reservation(plan.reservation)

    async def pass_over(self) -> None:
        """A short lease term, where nobody has one."""
        await pass_over_settled(self._host, engine_of(self._queue).producer.sender, self._at)


def _reserved_row(pick: Pick, mask: int) -> ReservedRow:
    return ReservedRow(LaneRow(pick.key, _order_of(pick.key), mask.bit_length(), 0, where=pick.where), mask)


def _live(row: LaneRow, facts: RowFacts | None, now_us: int) -> int:
    """How many messages of a row are neither settled, nor on their way elsewhere, nor hidden, as is on record."""
    facts = facts or RowFacts()
    gone = row.settled | facts.settled
    hidden = (index for index, tried in facts.tried.items() if tried.hidden_until_us > now_us)
    for index in (*row.moved, *facts.moved, *hidden):
        gone |= 1 << index
    return row.count - gone.bit_count()


def _smaller(one: Budget, other: Budget) -> Budget:
    return Budget(
        min(one.messages_max, other.messages_max),
        min(one.bytes_max, other.bytes_max),
        min(one.rows_max, other.rows_max),
    )


def _row_place(lane: LaneName, key: bytes) -> RowPlace:
    return RowPlace(lane[0], int.from_bytes(key[:2], "big"), lane[1], _due_of(key))


def _due_of(key: bytes) -> UUID:
    return UUID(bytes=key[2:18])


def _order_of(key: bytes) -> int:
    return position_order(_due_of(key))


def rows_by_id(plan: BatchPlan) -> dict[bytes, Spot]:
    """An id begins with the place of the row that it was first put into."""
    return {
        MessagePlace(_row_place(parse_lane(one.lane), pick.key), 0).to_bytes()[:-2]: (r, p)
        for r, one in enumerate(plan.ranges)
        for p, pick in enumerate(one.picks)
    }


class TimelineHistory:
    """Messages by due time, whatever their state, each once, at its first place: as in the source."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    async def splits(self, from_us: int, until_us: int) -> Sequence[HistorySplit]:
        """One for each lane and part that holds something: planning reads the index of the range's days alone."""
        engine = engine_of(self._queue)
        settings, host = engine.settings, engine.host
        history_splits = []
        for generation in settings.generations:
            async for part, subs in parts_from(host, settings, generation.number, from_us // settings.part_us):
                if part * settings.part_us >= until_us:
                    break
                begin, end = max(part * settings.part_us, from_us), min((part + 1) * settings.part_us, until_us)
                if begin < end:
                    lanes = [f"{generation.number}/{shard}" for shard in range(generation.shards)]
                    history_splits += [HistorySplit(lane, part, subs, begin, end) for lane in lanes]
        return sorted(history_splits, key=lambda split: (split.where, split.lane))

    def read(self, split: HistorySplit, columns: Sequence[str]) -> AsyncIterator[pa.RecordBatch]:
        """All messages put there and not cancelled."""
        after, up_to = (position_order(first_at(time_us)) - 1 for time_us in (split.from_us, split.until_us))
        engine = engine_of(self._queue)
        generation, shard = parse_lane(split.lane)
        stretches = [SplitStretch(generation, shard, split.where, sub, after, up_to, 0.0) for sub in split.subs]
        request = ScanRequest(HISTORY, ReadRange(), tuple(columns), 0)
        now_us = self._queue.now_us()
        return read_split(engine.host, engine.settings, request, stretches, now_us=now_us, cancelled_too=False)
